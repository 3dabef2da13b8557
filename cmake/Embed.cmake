# weft_embed_files(HEADER folder NAMES name …): a header that holds these files of the folder as texts, made anew when one
# of them changes.
function(weft_embed_files header folder)
  cmake_parse_arguments(ARG "" "" "NAMES" ${ARGN})
  set(text "// Made by cmake/Embed.cmake of the files in ${folder}.\n#pragma once\n\n#include <string_view>\n\n")
  string(APPEND text "namespace weft::serve {\n\nstruct PageFile {\n  std::string_view name, text;\n};\n\n"
                     "inline constexpr PageFile kPageFiles[] = {\n")
  foreach(name ${ARG_NAMES})
    set(path ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/${name})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    file(READ ${path} content)
    string(APPEND text "    {\"${name}\", R\"weft_file(${content})weft_file\"},\n")
  endforeach()
  string(APPEND text "};\n\n}  // namespace weft::serve\n")
  set(made ${CMAKE_CURRENT_BINARY_DIR}/embedded.h)
  file(WRITE ${made} "${text}")
  configure_file(${made} ${header} COPYONLY)
endfunction()
