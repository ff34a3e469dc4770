# SPDX-License-Identifier: Apache-2.0
tr_unit_test(sandbox sandbox PkgConfig::SECCOMP)
