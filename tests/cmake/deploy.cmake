# SPDX-License-Identifier: Apache-2.0
# What is installed, and what is there for proxies.  Once is enough: neither is about memory.
if(NOT TOKENRING_SANITIZE)
  add_test(NAME system_63_deploy COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/system/63_deploy.py)
  set_tests_properties(system_63_deploy PROPERTIES LABELS system TIMEOUT 600
    ENVIRONMENT "TOKENRING_BIN=$<TARGET_FILE:tokenring>;PYTHONDONTWRITEBYTECODE=1")
  add_test(NAME proxies_syntax COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/proxies/syntax.py)
  set_tests_properties(proxies_syntax PROPERTIES LABELS system TIMEOUT 120
    ENVIRONMENT "TOKENRING_BIN=$<TARGET_FILE:tokenring>;PYTHONDONTWRITEBYTECODE=1")
endif()
