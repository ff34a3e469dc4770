# SPDX-License-Identifier: Apache-2.0
foreach(noun claim close ring area bill region extra stream_id two_processes)
  tr_unit_test(shm ${noun} shmrig)
endforeach()
tr_program_test(stress shm ${CMAKE_SOURCE_DIR}/tests/stress/shm.c shmrig)
