# SPDX-License-Identifier: Apache-2.0
# The folder of a tool's unit tests is its library's parent, so the helper of the other folders
# (which links a library of the folder's name) does not fit.
function(tr_tool_unit_test tool noun)
  if(TOKENRING_SANITIZE MATCHES "thread")
    return()
  endif()
  set(t unit_tools_${noun})
  add_executable(${t} ${CMAKE_SOURCE_DIR}/tests/unit/tools/test_${noun}.c)
  target_link_libraries(${t} PRIVATE ${tool} tr_flags ${ARGN} PkgConfig::CRITERION)
  add_test(NAME ${t} COMMAND ${t} --timeout 120 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${t} PROPERTIES LABELS unit TIMEOUT 600)
endfunction()

foreach(noun sse_parse http_client chunk samples scrape)
  tr_tool_unit_test(client ${noun} m)
endforeach()
tr_tool_unit_test(replay trace m)
tr_tool_unit_test(bench playback m)

find_package(Threads REQUIRED)
add_executable(system_probe_streams
  ${CMAKE_SOURCE_DIR}/tests/system/probe_streams.c ${CMAKE_SOURCE_DIR}/tests/lib/scripted_http.c)
target_include_directories(system_probe_streams PRIVATE ${CMAKE_SOURCE_DIR}/tests/lib)
target_link_libraries(system_probe_streams PRIVATE probe tr_flags Threads::Threads)
add_test(NAME system_probe_streams COMMAND system_probe_streams)
set_tests_properties(system_probe_streams PROPERTIES LABELS system TIMEOUT 300)

tr_fuzz(probe_answer client)
tr_fuzz(trace replay)

pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
foreach(noun top_quantile top_attach top_render)
  tr_tool_unit_test(top ${noun} PkgConfig::JANSSON m)
endforeach()
tr_tool_unit_test(ledger_tool ledger_gather)
tr_tool_unit_test(inspect inspect testlib m)
