# SPDX-License-Identifier: Apache-2.0
# The whole service from outside: processes, sockets, ledger.  Numbered by layer, so that the first
# failure is the most basic one.  Each starts its own services on ports of the kernel's choice and counts
# only what is theirs, so some may run at the same time.  Not under TSan, which sees one process.
if(NOT TOKENRING_SANITIZE MATCHES "thread")
  add_executable(system_postgres_sink ${CMAKE_SOURCE_DIR}/tests/system/postgres_sink.c)
  target_link_libraries(system_postgres_sink PRIVATE ledger tr_flags)
  add_executable(system_ws_echo ${CMAKE_SOURCE_DIR}/tests/system/ws_echo.c)
  target_link_libraries(system_ws_echo PRIVATE frontend tr_flags)
  # With a device, as far as there can be one here: tier 2 runs scripts with it.
  add_executable(tokenring_late EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/supervisor/main.c ${CMAKE_SOURCE_DIR}/tests/lib/late_service.c)
  target_compile_definitions(tokenring_late PRIVATE TR_VERSION="${PROJECT_VERSION}")
  target_link_libraries(tokenring_late PRIVATE enginerig supervisor probe replay top ledger_tool inspect bench tr_flags)
  target_link_options(tokenring_late PRIVATE LINKER:--wrap=tr_backend_sim LINKER:--defsym=__wrap_tr_backend_sim=tr_backend_late)
  find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
  set(scripts
    10_start
    20_http
    21_framing
    23_echoes
    22_page
    30_api
    31_gemma
    32_qwen
    33_responses
    34_anthropic
    35_websocket
    36_http2
    37_tls
    38_grpc
    39_fields
    40_streams
    41_coalescing
    42_messages
    43_logprobs
    45_endings
    46_events
    48_matrix
    48_text
    50_cancel
    52_disconnect
    53_counting
    55_flow
    56_scheduling
    57_resume
    58_cut_points
    60_processes
    61_sandbox
    65_replace
    66_engine_death
    70_ledger
    71_postgres
    72_ledger_tool
    73_spool
    74_traces
    80_field
  )
  # Once, without sanitizers: the arithmetic of a model, which is slow with them and has its own tests there;
  # what is looked for in memory, on a page or by the clock; long silences, the manager's messages and our
  # own clients, whose code unit tests and other scripts run with sanitizers.
  if(NOT TOKENRING_SANITIZE)
    list(APPEND scripts
      25_keys 44_access 44_metrics 47_silence 49_structured 51_tools 54_speculation
      59_prefix_cache 62_systemd 64_secrets 67_idempotency 75_resources 85_replay
      86_top 87_bench 88_inspect)
  endif()
  if(TOKENRING_FAULTS)
    list(APPEND scripts 68_faults)
  endif()
  find_program(PROMETHEUS prometheus) # tier 2 installs it
  if(PROMETHEUS AND NOT TOKENRING_SANITIZE)
    list(APPEND scripts 91_prometheus)
  endif()
  if(TOKENRING_SANITIZE) # tools/check runs it for minutes on the plain build
    list(APPEND scripts 95_soak)
  endif()
  foreach(script ${scripts})
    set(t system_${script})
    add_test(NAME ${t} COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/system/${script}.py
             WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${t} PROPERTIES LABELS system TIMEOUT 1500
      ENVIRONMENT "TOKENRING_BIN=$<TARGET_FILE:tokenring>;PYTHONDONTWRITEBYTECODE=1;PYTHONUNBUFFERED=1")
  endforeach()
  if(TARGET tokenring_cuda_on_cpu)
    add_test(NAME system_69_cuda COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/system/69_cuda.py
             WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(system_69_cuda PROPERTIES LABELS system TIMEOUT 600
      ENVIRONMENT "TOKENRING_BIN=$<TARGET_FILE:tokenring_cuda_on_cpu>;PYTHONDONTWRITEBYTECODE=1;PYTHONUNBUFFERED=1")
  endif()
  # CTest begins with these: the longest, so that none of them is alone at the end.
  set_tests_properties(system_60_processes PROPERTIES COST 90)
  set_tests_properties(system_80_field system_65_replace system_71_postgres system_50_cancel system_10_start PROPERTIES COST 60)
endif()
