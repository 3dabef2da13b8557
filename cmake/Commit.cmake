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
add_custom_command(
  OUTPUT ${weft_BINARY_DIR}/include/weft/commit.h
  COMMAND ${CMAKE_COMMAND} -D git=${GIT_EXECUTABLE} -D source=${weft_SOURCE_DIR}
          -D header=${weft_BINARY_DIR}/include/weft/commit.h -P ${CMAKE_CURRENT_LIST_DIR}/write_commit.cmake
  DEPENDS ${log} ${CMAKE_CURRENT_LIST_DIR}/write_commit.cmake
  COMMENT "Noting the commit" VERBATIM)
