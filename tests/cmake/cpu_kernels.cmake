# SPDX-License-Identifier: Apache-2.0
foreach(noun quant product rows curves attention memory threads)
  tr_unit_test(cpu_kernels ${noun} m)
endforeach()
tr_program_test(stress threads ${CMAKE_SOURCE_DIR}/tests/stress/threads.c cpu_kernels)
