# SPDX-License-Identifier: Apache-2.0
tr_unit_test(base gguf)
tr_fuzz(gguf base)
