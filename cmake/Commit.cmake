# include/weft/commit.h with WEFT_COMMIT, the short name of the commit that is built, or nothing outside of a clone. It
# is written anew when HEAD moves, which git notes in logs/HEAD.
set(log)
find_package(Git QUIET)
if(GIT_FOUND AND EXISTS ${weft_SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --path-format=absolute --git-path logs/HEAD
                  WORKING_DIRECTORY ${weft_SOURCE_DIR} OUTPUT_VARIABLE log OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT EXISTS "${log}")
  set(log)
endif()
set(header ${weft_BINARY_DIR}/include/weft/commit.h)
set(write_commit ${CMAKE_COMMAND} -D git=${GIT_EXECUTABLE} -D source=${weft_SOURCE_DIR} -D header=${header}
                 -P ${CMAKE_CURRENT_LIST_DIR}/write_commit.cmake)
# Tools that read the sources without building them need one, too.
if(NOT EXISTS ${header})
  execute_process(COMMAND ${write_commit})
endif()
add_custom_command(
  OUTPUT ${header}
  COMMAND ${write_commit}
  DEPENDS ${log} ${CMAKE_CURRENT_LIST_DIR}/write_commit.cmake
  COMMENT "Noting the commit" VERBATIM)
