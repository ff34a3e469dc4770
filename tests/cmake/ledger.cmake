# SPDX-License-Identifier: Apache-2.0
tr_unit_test(ledger row)
tr_unit_test(ledger frame)
tr_unit_test(ledger spool)
tr_unit_test(ledger pg PkgConfig::LIBPQ)
tr_unit_test(ledger pg_sql PkgConfig::LIBPQ)
tr_unit_test(ledger sqlite PkgConfig::SQLITE)
tr_unit_test(ledger settle shmrig)
tr_unit_test(ledger ledger shmrig PkgConfig::SQLITE)
tr_fuzz(shm_ledger ledger shmrig)
tr_fuzz(spool ledger)
# Not a test: what tools/bench/ledger runs.
add_executable(bench_ledger EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tools/bench/ledger_rows.c)
target_link_libraries(bench_ledger PRIVATE ledger shmrig tr_flags)
