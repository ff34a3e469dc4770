# SPDX-License-Identifier: Apache-2.0
# The kernel suite (tests/cuda): on the CPU as tests; for a GPU, where there is nvcc, as programs that
# tools/gpu_check runs.
set(suite
  activations
  attention
  attention_fast
  elements
  embedding
  kv
  norms
  places
  product_many
  products
  runtime
  sampling
  strips
)
if(TARGET cuda_kernels_on_cpu)
  foreach(noun ${suite})
    add_executable(cuda_${noun} ${CMAKE_SOURCE_DIR}/tests/cuda/${noun}.cc)
    target_link_libraries(cuda_${noun} PRIVATE cuda_kernels_on_cpu)
    add_test(NAME cuda_${noun} COMMAND cuda_${noun} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(cuda_${noun} PROPERTIES LABELS cuda TIMEOUT 600)
    set_property(GLOBAL APPEND PROPERTY TR_CUDA_SUITE cuda_${noun})
  endforeach()
elseif(TARGET cuda_kernels)
  list(REMOVE_ITEM suite runtime) # it is about cuda_on_cpu.h
  foreach(noun ${suite})
    add_executable(gpu_suite_${noun} ${CMAKE_SOURCE_DIR}/tests/cuda/${noun}.cc)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/cuda/${noun}.cc PROPERTIES LANGUAGE CUDA)
    target_link_libraries(gpu_suite_${noun} PRIVATE cuda_kernels cuda_flags tr_flags)
    set_target_properties(gpu_suite_${noun} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/gpu_check)
    target_link_options(gpu_suite_${noun} PRIVATE -s)
    set_property(GLOBAL APPEND PROPERTY TR_CUDA_SUITE gpu_suite_${noun})
  endforeach()
endif()

# Sampling is held against the engine's own.
foreach(program cuda_sampling gpu_suite_sampling)
  if(TARGET ${program})
    target_sources(${program} PRIVATE
      ${CMAKE_SOURCE_DIR}/tests/cuda/sampling_cases.c ${CMAKE_SOURCE_DIR}/engine/pick_cuda.c)
    target_link_libraries(${program} PRIVATE engine m)
  endif()
endforeach()

# The engine over them, CUDA on the CPU.
if(TARGET cuda_kernels_on_cpu)
  add_executable(cuda_backend ${CMAKE_SOURCE_DIR}/tests/cuda/backend.c ${CMAKE_SOURCE_DIR}/tests/cuda/backend_calls.cc)
  target_link_libraries(cuda_backend PRIVATE backend_cuda cuda_kernels_on_cpu engine tr_flags)
  add_test(NAME cuda_backend COMMAND cuda_backend WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(cuda_backend PROPERTIES LABELS cuda TIMEOUT 600)
endif()
if(TARGET cuda_kernels_on_cpu AND NOT TOKENRING_ENGINE_ONLY AND NOT TOKENRING_SANITIZE)
  # The service as it is on a GPU, for tests/system/69_cuda.py.
  add_executable(tokenring_cuda_on_cpu ${CMAKE_SOURCE_DIR}/supervisor/main.c)
  target_compile_definitions(tokenring_cuda_on_cpu PRIVATE TR_VERSION="${PROJECT_VERSION}")
  target_link_libraries(tokenring_cuda_on_cpu PRIVATE backend_cuda cuda_kernels_on_cpu
    supervisor probe replay top ledger_tool inspect bench tr_flags)
  # Takes minutes: run by tools/check --all.
  pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
  foreach(noun constrain speculate) # all together on a device, each alone on the CPU
    add_executable(cuda_${noun} EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/unit/engine/test_${noun}.c)
    target_compile_definitions(cuda_${noun} PRIVATE TOGETHER=tr_backend_cuda)
    target_link_libraries(cuda_${noun} PRIVATE backend_cuda cuda_kernels_on_cpu enginerig testlib tr_flags PkgConfig::CRITERION)
  endforeach()
  add_executable(golden_cuda ${CMAKE_SOURCE_DIR}/tests/golden/cuda.c)
  target_link_libraries(golden_cuda PRIVATE backend_cuda cuda_kernels_on_cpu enginerig tr_flags PkgConfig::JANSSON)
endif()
