# Flags that every target of ours gets.
add_library(weft_compile INTERFACE)
target_compile_options(weft_compile INTERFACE -Wall -Wextra -Werror -Wno-psabi)
# GCC 12 warns of overlapping copies in `"literal" + std::string` that cannot overlap (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(weft_compile INTERFACE -Wno-restrict)
endif()
target_include_directories(weft_compile INTERFACE ${CMAKE_SOURCE_DIR})
if(WEFT_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    message(FATAL_ERROR "WEFT_FUZZ: expected clang, got ${CMAKE_CXX_COMPILER_ID}; "
                        "configure with `cmake --preset fuzz`")
  endif()
  target_compile_options(weft_compile INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(WEFT_SANITIZE)
  target_compile_options(weft_compile INTERFACE -fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer
                                                -fno-sanitize-recover=all)
  target_link_options(weft_compile INTERFACE -fsanitize=${WEFT_SANITIZE})
endif()
