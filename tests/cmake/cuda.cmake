# SPDX-License-Identifier: Apache-2.0
# The kernel suite (tests/cuda), on the CPU.
if(TARGET cuda_kernels_on_cpu)
  foreach(noun
      activations
      attention
      elements
      embedding
      kv
      norms
      places
      runtime
      strips
  )
    add_executable(cuda_${noun} ${CMAKE_SOURCE_DIR}/tests/cuda/${noun}.cc)
    target_link_libraries(cuda_${noun} PRIVATE cuda_kernels_on_cpu)
    add_test(NAME cuda_${noun} COMMAND cuda_${noun} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(cuda_${noun} PROPERTIES LABELS cuda TIMEOUT 600)
  endforeach()
endif()
