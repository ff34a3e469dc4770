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
  products
  runtime
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
    set_property(GLOBAL APPEND PROPERTY TR_CUDA_SUITE gpu_suite_${noun})
  endforeach()
endif()
