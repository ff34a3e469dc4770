# SPDX-License-Identifier: Apache-2.0
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(LIBCRYPTO REQUIRED IMPORTED_TARGET libcrypto)
tr_serial_test(golden gguf ${CMAKE_CURRENT_SOURCE_DIR}/golden/gguf.c testrig PkgConfig::JANSSON PkgConfig::LIBCRYPTO m)

tr_serial_test(golden quants ${CMAKE_CURRENT_SOURCE_DIR}/golden/quants.c cpu_kernels PkgConfig::JANSSON m)

# One program, one test per arithmetic, so that a failure names it and they can run side by side.
# Sanitizers see the same code in tests/unit/engine on tiny models; here they would take half an hour.
add_executable(golden_forward ${CMAKE_CURRENT_SOURCE_DIR}/golden/forward.c)
target_link_libraries(golden_forward PRIVATE testrig tr_flags PkgConfig::JANSSON m)
if(NOT TOKENRING_SANITIZE)
  foreach(mode f32 blas f32-f16 int8 int8-q8 levels p10)
    add_test(NAME golden_forward_${mode} COMMAND golden_forward ${mode} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(golden_forward_${mode} PROPERTIES LABELS golden TIMEOUT 900)
  endforeach()
  # OpenBLAS on a second model is tier 2: it is slow, and what is ours of it is the same.
  foreach(mode f32 f32-f16 int8 int8-q8 levels p10)
    add_test(NAME golden_gemma3_${mode} COMMAND golden_forward ${mode} gemma3 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(golden_gemma3_${mode} PROPERTIES LABELS golden TIMEOUT 900)
  endforeach()
endif()

tr_program_test(golden tiny ${CMAKE_SOURCE_DIR}/tests/golden/tiny.c testrig PkgConfig::JANSSON m)

# The recorded files are those that the manifest and the README speak of.
add_test(NAME golden_manifest COMMAND python3 tests/golden/check_golden.py --manifest
  WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
set_tests_properties(golden_manifest PROPERTIES LABELS golden)
