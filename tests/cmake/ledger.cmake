# SPDX-License-Identifier: Apache-2.0
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
tr_unit_test(ledger file)
tr_unit_test(ledger row PkgConfig::JANSSON)
tr_unit_test(ledger settle shmrig)
tr_unit_test(ledger ledger shmrig)
tr_fuzz(shm_ledger ledger shmrig)
