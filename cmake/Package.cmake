# What `cpack` packs from the build folder (./start package): an archive that runs wherever it is unpacked, and a Debian
# package. Both hold the program, the libraries of libtorch that it loads, and all licences. WEFT_PACKAGE_PARTS are the
# install components.
set(WEFT_PACKAGE_PARTS program bundle)
set(doc_folder ${CMAKE_INSTALL_DATADIR}/doc/weft)

install(CODE "set(torch_root \"${WEFT_TORCH_ROOT}\")
              set(library_folder \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/weft\")
              set(license_folder \"\${CMAKE_INSTALL_PREFIX}/${doc_folder}/licenses\")"
        COMPONENT bundle EXCLUDE_FROM_ALL)
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/bundle_torch.cmake COMPONENT bundle EXCLUDE_FROM_ALL)
install(FILES ${weft_SOURCE_DIR}/README.md ${weft_SOURCE_DIR}/CHANGELOG.md ${CMAKE_CURRENT_LIST_DIR}/copyright
        DESTINATION ${doc_folder} COMPONENT bundle EXCLUDE_FROM_ALL)
install(FILES ${weft_SOURCE_DIR}/LICENSE DESTINATION ${doc_folder}/licenses/weft COMPONENT bundle EXCLUDE_FROM_ALL)
# What is compiled in from Debian's packages.
foreach(package nlohmann-json3-dev libcli11-dev libtomlplusplus-dev libgloo-dev libboost1.81-dev libssl-dev libedit-dev)
  install(FILES /usr/share/doc/${package}/copyright DESTINATION ${doc_folder}/licenses/${package}
          COMPONENT bundle EXCLUDE_FROM_ALL OPTIONAL)
endforeach()

if(WEFT_HAS_XGRAMMAR)
  install(FILES ${WEFT_XGRAMMAR_ROOT}/LICENSE ${WEFT_XGRAMMAR_ROOT}/NOTICE
          DESTINATION ${doc_folder}/licenses/xgrammar COMPONENT bundle EXCLUDE_FROM_ALL)
endif()

set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_NAME weft)
set(CPACK_PACKAGE_VENDOR weft)
set(CPACK_PACKAGE_CONTACT "weft's maintainers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "splits transformer models over processes")
set(CPACK_PACKAGE_DESCRIPTION "weft cuts a model's layers over any number of processes, on one machine or many:\
 inference, training and conversion of GGUF and safetensors models, without Python.")
set(CPACK_PACKAGE_FILE_NAME weft-${weft_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_PACKAGE_DIRECTORY ${weft_BINARY_DIR}/package)
set(CPACK_COMPONENTS_ALL ${WEFT_PACKAGE_PARTS})
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_LIST_DIR}/package_layout.cmake)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
                                                WORLD_READ WORLD_EXECUTE)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_NAME weft)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.36), libgcc-s1, libstdc++6 (>= 12)")
# Loaded where there is a terminal; lines are read without it, too.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS libedit2)
if(WEFT_MPI_KIND STREQUAL openmpi)
  set(CPACK_DEBIAN_PACKAGE_SUGGESTS openmpi-bin)
endif()
# Debian 12's dpkg unpacks it, and it takes a tenth of xz's time.
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
include(CPack)
