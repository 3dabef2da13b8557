# Flags that every target of ours gets.
add_library(weft_compile INTERFACE)
target_compile_options(weft_compile INTERFACE -Wall -Wextra -Werror -Wno-psabi)
target_include_directories(weft_compile INTERFACE ${CMAKE_SOURCE_DIR})
if(WEFT_SANITIZE)
  target_compile_options(weft_compile INTERFACE -fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer
                                                -fno-sanitize-recover=all)
  target_link_options(weft_compile INTERFACE -fsanitize=${WEFT_SANITIZE})
endif()
