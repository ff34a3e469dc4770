# SPDX-License-Identifier: Apache-2.0
tr_unit_test(engine rope_spec m)
tr_unit_test(engine model)
tr_unit_test(engine forward testrig)
tr_unit_test(engine cached_rows testrig)
tr_fuzz(model engine)
tr_unit_test(engine seq)
tr_unit_test(engine kv)
tr_unit_test(engine ngram)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
tr_unit_test(engine prefix PkgConfig::XXHASH)
if(TARGET unit_engine_prefix)
  target_link_options(unit_engine_prefix PRIVATE LINKER:--wrap=XXH3_64bits_withSeed)
endif()
tr_unit_test(engine weights)
tr_unit_test(engine cost m)
tr_unit_test(engine fair)
tr_unit_test(engine plan m)
tr_unit_test(engine dist m)
tr_unit_test(engine sample m)

pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
tr_program_test(golden sampling ${CMAKE_SOURCE_DIR}/tests/golden/sampling.c engine PkgConfig::JANSSON m)

tr_unit_test(engine sim)
foreach(noun admit cached constrain disorder engine handover offer order settle recover slot_stat speculate step suspect)
  tr_unit_test(engine ${noun} enginerig)
endforeach()
if(TARGET unit_engine_handover)
  target_link_options(unit_engine_handover PRIVATE LINKER:--wrap=tr_cursor_at)
endif()
# Under ASan the real model takes four minutes for what unit_engine_step and unit_engine_forward see
# on small ones; under TSan it is the only place where engine and threads work on real batches.
if(NOT TOKENRING_SANITIZE MATCHES "address")
  tr_program_test(golden batching ${CMAKE_SOURCE_DIR}/tests/golden/batching.c enginerig)
endif()
# Processes that do not know each other: what TSan sees of them it sees in stress_shm.
if(NOT TOKENRING_SANITIZE MATCHES "thread")
  tr_program_test(stress hostile ${CMAKE_SOURCE_DIR}/tests/stress/hostile.c engine ledger PkgConfig::SQLITE m)
  target_sources(stress_hostile PRIVATE ${CMAKE_SOURCE_DIR}/tests/stress/good.c
    ${CMAKE_SOURCE_DIR}/tests/stress/evil.c ${CMAKE_SOURCE_DIR}/tests/stress/hostile_ledger.c)
endif()
tr_fuzz(shm_engine enginerig)

# Measurements, not tests (docs/performance.md).
foreach(what turn waiting)
  add_executable(bench_${what} EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tools/bench/${what}.c)
  target_link_libraries(bench_${what} PRIVATE enginerig tr_flags)
endforeach()
