# SPDX-License-Identifier: Apache-2.0
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)

foreach(noun vocab pretok bpe spm encode detok stop scan split tool_format)
  tr_unit_test(text ${noun})
endforeach()
tr_program_test(golden text ${CMAKE_SOURCE_DIR}/tests/golden/text.c text PkgConfig::JANSSON)
add_test(NAME golden_text_gemma3 COMMAND golden_text gemma3 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
set_tests_properties(golden_text_gemma3 PROPERTIES LABELS golden TIMEOUT 900)
tr_fuzz(text_encode text testlib)
tr_fuzz(text_scan text)
tr_fuzz(text_split text)
tr_fuzz(text_vocab text)

tr_program_test(golden templates ${CMAKE_SOURCE_DIR}/tests/golden/templates.c text PkgConfig::JANSSON)
foreach(noun jinja jinja_origin chat chat_traits)
  tr_unit_test(text ${noun})
endforeach()
tr_fuzz(jinja text)
