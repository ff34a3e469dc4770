# SPDX-License-Identifier: Apache-2.0
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
find_library(HTTP_PARSER_LIBRARY http_parser REQUIRED)

tr_unit_test(frontend json PkgConfig::JANSSON)
tr_unit_test(frontend emit)
tr_unit_test(frontend sse)
tr_unit_test(frontend http ${HTTP_PARSER_LIBRARY})
tr_unit_test(frontend conn PkgConfig::EVENT)

tr_unit_test(frontend params testfe)
tr_unit_test(frontend stream testfe)

tr_fuzz(json frontend)
tr_fuzz(http frontend)
