# SPDX-License-Identifier: Apache-2.0
# The Debian package: `cpack -G DEB` in a build folder, of the release preset for others to install.
# Nothing is started or enabled by installing it.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tokenring)
# Who makes a package answers for it, and says so as for Debian's own tools: DEBEMAIL, DEBFULLNAME.
if(DEFINED ENV{DEBEMAIL})
  set(maker "$ENV{DEBFULLNAME}")
  if(NOT maker)
    set(maker "tokenring")
  endif()
  set(TOKENRING_CONTACT "${maker} <$ENV{DEBEMAIL}>" CACHE STRING "maintainer of the package" FORCE)
else()
  cmake_host_system_information(RESULT host QUERY FQDN)
  set(TOKENRING_CONTACT "tokenring, built on ${host} <root@${host}>" CACHE STRING "maintainer of the package")
endif()
set(CPACK_PACKAGE_CONTACT "${TOKENRING_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "server that streams the answers of language models")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
  "One engine process, forked frontends, shared memory between them, a ledger\n of every token. OpenAI, Anthropic, gRPC, WebSocket and native interfaces.")
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# The BLAS of --cpu-math blas is opened by name when it is asked for.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libopenblas0-pthread")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/deploy/debian/postinst ${CMAKE_SOURCE_DIR}/deploy/debian/prerm
  ${CMAKE_SOURCE_DIR}/deploy/debian/postrm ${CMAKE_SOURCE_DIR}/deploy/debian/conffiles)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_SET_DESTDIR ON) # files outside the prefix: /etc
set(CPACK_INSTALL_PREFIX /usr)
include(CPack)
