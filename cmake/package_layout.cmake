# Read by cpack for each kind of package: an archive has one folder at its top, a Debian package begins at /usr.
if(CPACK_GENERATOR STREQUAL TGZ)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
endif()
