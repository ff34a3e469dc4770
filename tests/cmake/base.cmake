# SPDX-License-Identifier: Apache-2.0
tr_unit_test(base cpus)
tr_unit_test(base err)
if(TOKENRING_FAULTS)
  tr_unit_test(base fault)
endif()
tr_unit_test(base gguf)
tr_unit_test(base log)
tr_fuzz(gguf base)
