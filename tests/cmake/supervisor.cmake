# SPDX-License-Identifier: Apache-2.0
tr_unit_test(supervisor compute)
tr_unit_test(supervisor key_file)
tr_unit_test(supervisor options)
tr_unit_test(supervisor systemd)
