# SPDX-License-Identifier: Apache-2.0
# Run by `cmake --install` and cpack: units and their variables below the prefix, those of /usr in /etc.
# A file of variables that is there is somebody's: it stays.
set(bindir "${CMAKE_INSTALL_PREFIX}/${TR_BINDIR}")
set(confdir "${CMAKE_INSTALL_PREFIX}/etc/tokenring")
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(confdir "/etc/tokenring")
endif()
set(units "${CMAKE_INSTALL_PREFIX}/lib/systemd/system")
foreach(unit tokenring.service tokenring@.service)
  configure_file("${TR_DEPLOY}/systemd/${unit}.in" "$ENV{DESTDIR}${units}/${unit}" @ONLY)
endforeach()
file(INSTALL "${TR_DEPLOY}/systemd/tokenring.socket" "${TR_DEPLOY}/systemd/tokenring-grpc.socket"
  "${TR_DEPLOY}/systemd/tokenring@.socket" DESTINATION "${units}")
if(NOT EXISTS "$ENV{DESTDIR}${confdir}/tokenring.env")
  file(INSTALL "${TR_DEPLOY}/systemd/tokenring.env" DESTINATION "${confdir}")
endif()
