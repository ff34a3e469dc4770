# SPDX-License-Identifier: Apache-2.0
foreach(noun stat claim close ring area bill quota region rights extra stream_id two_processes)
  tr_unit_test(shm ${noun} shmrig)
endforeach()
tr_program_test(stress shm ${CMAKE_SOURCE_DIR}/tests/stress/shm.c shmrig)
# The files with full fences once more, on a simulated machine that delays stores; in one thread, so
# there is nothing for TSan.
if(NOT TOKENRING_SANITIZE MATCHES "thread")
  tr_program_test(stress handshake ${CMAKE_SOURCE_DIR}/tests/stress/handshake.c shmrig)
  target_sources(stress_handshake PRIVATE ${CMAKE_SOURCE_DIR}/tests/stress/tso.c
    ${CMAKE_SOURCE_DIR}/shm/bell.c ${CMAKE_SOURCE_DIR}/shm/area.c ${CMAKE_SOURCE_DIR}/shm/bitmap.c
    ${CMAKE_SOURCE_DIR}/shm/lpring.c)
  target_compile_options(stress_handshake PRIVATE -include ${CMAKE_SOURCE_DIR}/tests/stress/tso.h)
endif()
tr_fuzz(shm_extra shm m)
tr_fuzz(stream_id shm)
