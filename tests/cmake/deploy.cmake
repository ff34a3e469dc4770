# SPDX-License-Identifier: Apache-2.0
# What is installed.  Once is enough: the package is not made of a build with sanitizers.
if(NOT TOKENRING_SANITIZE)
  add_test(NAME system_63_deploy COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/system/63_deploy.py)
  set_tests_properties(system_63_deploy PROPERTIES LABELS system TIMEOUT 600
    ENVIRONMENT "TOKENRING_BIN=$<TARGET_FILE:tokenring>;PYTHONDONTWRITEBYTECODE=1")
endif()
