# SPDX-License-Identifier: Apache-2.0
tr_unit_test(ledger row)
tr_unit_test(ledger frame)
tr_unit_test(ledger spool)
tr_unit_test(ledger sqlite PkgConfig::SQLITE)
tr_unit_test(ledger settle shmrig)
tr_unit_test(ledger ledger shmrig PkgConfig::SQLITE)
tr_fuzz(shm_ledger ledger shmrig)
tr_fuzz(spool ledger)
