# Run while a package is put together: copies libtorch_cpu.so from torch_root and whatever it loads that is no library of
# Debian's into library_folder, laid out as it was, because libtorch finds its own by $ORIGIN; and the licences of the
# wheels that they came from into license_folder.
get_filename_component(around ${torch_root} DIRECTORY)
file(GET_RUNTIME_DEPENDENCIES LIBRARIES ${torch_root}/lib/libtorch_cpu.so RESOLVED_DEPENDENCIES_VAR needed
     UNRESOLVED_DEPENDENCIES_VAR missing POST_EXCLUDE_REGEXES "^/lib" "^/usr/lib")
if(missing)
  message(FATAL_ERROR "package: libtorch_cpu.so of ${torch_root} needs ${missing}, which were not found; install them")
endif()
foreach(library ${torch_root}/lib/libtorch_cpu.so ${needed})
  file(RELATIVE_PATH place ${torch_root} ${library})
  if(place MATCHES "^[.][.]/")
    file(RELATIVE_PATH place ${around} ${library})
  else()
    set(place torch/${place})
  endif()
  if(place MATCHES "^[.][.]/")
    message(FATAL_ERROR "package: libtorch needs ${library}, expected it under ${around}; use a libtorch of one folder")
  endif()
  get_filename_component(folder ${place} DIRECTORY)
  file(INSTALL ${library} DESTINATION ${library_folder}/${folder} FOLLOW_SYMLINK_CHAIN)
endforeach()

file(GLOB licenses ${around}/torch-*.dist-info/licenses/* ${around}/nvidia_*.dist-info/licenses/* ${torch_root}/LICENSE
     ${torch_root}/NOTICE)
foreach(license ${licenses})
  string(REGEX REPLACE ".*/([^/]*)[.]dist-info/.*" "\\1" wheel ${license})
  if(wheel STREQUAL license)
    set(wheel torch)
  endif()
  file(INSTALL ${license} DESTINATION ${license_folder}/${wheel})
endforeach()
