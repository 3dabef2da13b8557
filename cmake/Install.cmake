# What `cmake --install` puts under a prefix: the program (two files), the libraries as targets weft::core … weft::train,
# their public headers, and what find_package(weft) reads.
include(CMakePackageConfigHelpers)

# weft_collect_headers(OUT header…): the headers and all of ours that they include, so that no header
# is installed that is only for weft's own sources.
function(weft_collect_headers out)
  set(waiting ${ARGN})
  set(found)
  while(waiting)
    list(POP_FRONT waiting header)
    if(header IN_LIST found OR NOT EXISTS ${weft_SOURCE_DIR}/${header})
      continue()
    endif()
    list(APPEND found ${header})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${weft_SOURCE_DIR}/${header})
    file(STRINGS ${weft_SOURCE_DIR}/${header} lines REGEX "^#include \"weft/")
    foreach(line ${lines})
      string(REGEX REPLACE ".*\"(.*)\".*" "\\1" included ${line})
      list(APPEND waiting ${included})
    endforeach()
  endwhile()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

set(areas core shard text dist ops quant nn io models generate train)
list(TRANSFORM areas REPLACE "(.+)" "weft/\\1.h" OUTPUT_VARIABLE umbrellas)
weft_collect_headers(headers ${umbrellas})
foreach(header ${headers})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${weft_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder} COMPONENT dev)
endforeach()
install(FILES ${weft_BINARY_DIR}/include/weft/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weft COMPONENT dev)

get_property(modules GLOBAL PROPERTY WEFT_MODULES)
list(REMOVE_ITEM modules weft_cli weft_serve)
foreach(target compile torch)
  set_target_properties(weft_${target} PROPERTIES EXPORT_NAME ${target})
endforeach()
if(WEFT_HAS_XGRAMMAR)
  list(APPEND modules weft_xgrammar)
endif()
install(TARGETS ${modules} weft_compile weft_torch EXPORT weftTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
# The program finds libtorch under its own prefix alone, wherever that is moved: here as a link to the one that weft was
# built with, in a package as a copy (Package.cmake).
set(run_path $ORIGIN/../${CMAKE_INSTALL_LIBDIR}/weft $ORIGIN/../${CMAKE_INSTALL_LIBDIR}/weft/torch/lib)
install(CODE "
  set(link \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/weft/torch\")
  if(IS_SYMLINK \"\${link}\" OR NOT EXISTS \"\${link}\")
    get_filename_component(folder \"\${link}\" DIRECTORY)
    file(MAKE_DIRECTORY \"\${folder}\")
    file(CREATE_LINK \"${WEFT_TORCH_ROOT}\" \"\${link}\" SYMBOLIC)
  endif()" COMPONENT libtorch)
set_target_properties(weft-tensors PROPERTIES INSTALL_RPATH "${run_path}")
if(WEFT_HAS_MPI)
  # The program has loaded libtorch by then.
  set_target_properties(weft_mpi PROPERTIES INSTALL_RPATH $ORIGIN/torch/lib)
  install(TARGETS weft_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/weft COMPONENT program)
endif()
install(TARGETS weft weft-tensors RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)

# What shells and man read is made by the program itself, of the flags that it has.
foreach(file bash:bash-completion/completions/weft zsh:zsh/vendor-completions/_weft man:man/man1/weft.1)
  string(REPLACE ":" ";" file ${file})
  list(POP_FRONT file format path)
  install(CODE "
    set(path \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/${path}\")
    get_filename_component(folder \"\${path}\" DIRECTORY)
    file(MAKE_DIRECTORY \"\${folder}\")
    execute_process(COMMAND \"${weft_BINARY_DIR}/weft\" completion ${format} OUTPUT_FILE \"\${path}\"
                    COMMAND_ERROR_IS_FATAL ANY)" COMPONENT program)
endforeach()

set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
install(EXPORT weftTargets NAMESPACE weft:: DESTINATION ${config_folder} COMPONENT dev)
configure_package_config_file(${weft_SOURCE_DIR}/cmake/weftConfig.cmake.in
                              ${weft_BINARY_DIR}/weftConfig.cmake INSTALL_DESTINATION ${config_folder})
write_basic_package_version_file(${weft_BINARY_DIR}/weftConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${weft_BINARY_DIR}/weftConfig.cmake ${weft_BINARY_DIR}/weftConfigVersion.cmake
              ${weft_SOURCE_DIR}/cmake/Torch.cmake
        DESTINATION ${config_folder} COMPONENT dev)
