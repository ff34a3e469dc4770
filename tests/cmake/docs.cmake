# SPDX-License-Identifier: Apache-2.0
# What the documentation shows and says of the program is so.  Once is enough: not under sanitizers.
if(NOT TOKENRING_SANITIZE)
  add_test(NAME docs_tables COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/docs/tables $<TARGET_FILE:tokenring>)
  add_test(NAME docs_man COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/docs/man $<TARGET_FILE:tokenring>)
  add_test(NAME docs_commands COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/docs/run $<TARGET_FILE:tokenring>)
  add_test(NAME docs_claims COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/docs/claims)
  set_tests_properties(docs_tables docs_man docs_commands docs_claims PROPERTIES LABELS "docs;system" TIMEOUT 900)
endif()
