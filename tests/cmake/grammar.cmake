# SPDX-License-Identifier: Apache-2.0
foreach(noun build match mask mask_bounds regex schema gbnf)
  tr_unit_test(grammar ${noun})
endforeach()

# Rows that were recorded beside other implementations (tests/oracle/grammar.py).
if(NOT TOKENRING_SANITIZE MATCHES "thread")
  add_executable(oracle_grammar ${CMAKE_SOURCE_DIR}/tests/oracle/grammar.c)
  target_link_libraries(oracle_grammar PRIVATE grammar tr_flags)
  add_test(NAME oracle_grammar COMMAND oracle_grammar ${CMAKE_SOURCE_DIR}/tests/oracle/grammar.jsonl)
  set_tests_properties(oracle_grammar PROPERTIES LABELS oracle TIMEOUT 300)
endif()
tr_fuzz(constraint grammar)
tr_fuzz(grammar_program grammar)
