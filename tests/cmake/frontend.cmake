# SPDX-License-Identifier: Apache-2.0
tr_unit_test(frontend json testoracle)
tr_unit_test(frontend emit)
tr_unit_test(frontend outbuf)
tr_unit_test(frontend sse)
tr_unit_test(frontend http testoracle)
tr_unit_test(frontend conn PkgConfig::EVENT)
tr_unit_test(frontend balance PkgConfig::EVENT)

tr_unit_test(frontend params testfe)
tr_unit_test(frontend stream testfe)
tr_unit_test(frontend memory testfe)
if(TARGET unit_frontend_memory)
  target_link_options(unit_frontend_memory PRIVATE
    LINKER:--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strndup)
endif()

tr_fuzz(json frontend)
tr_fuzz(http frontend)
tr_fuzz(json_oracle testoracle)
tr_fuzz(json_grammar testoracle)
tr_fuzz(http_oracle testoracle)
tr_fuzz(http_grammar testoracle)
