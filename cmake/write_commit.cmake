# Run by the build (Commit.cmake): writes header for the commit at which the clone source stands.
set(commit)
if(git AND EXISTS ${source}/.git)
  execute_process(COMMAND ${git} rev-parse --short=12 HEAD WORKING_DIRECTORY ${source} OUTPUT_VARIABLE commit
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(WRITE ${header} "#define WEFT_COMMIT \"${commit}\"\n")
