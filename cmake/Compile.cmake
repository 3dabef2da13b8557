# What every target of ours is compiled with, and whoever links one: C++20, and includes from the root
# of the sources ("weft/nn.h").
add_library(weft_compile INTERFACE)
target_compile_features(weft_compile INTERFACE cxx_std_20)
target_include_directories(weft_compile INTERFACE
  $<BUILD_INTERFACE:${weft_SOURCE_DIR}> $<BUILD_INTERFACE:${weft_BINARY_DIR}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# What only our own files get: a user's warnings are a user's business.
add_library(weft_own INTERFACE)
target_compile_options(weft_own INTERFACE -Wall -Wextra -Werror -Wno-psabi)
# GCC 12 warns of overlapping copies in `"literal" + std::string` that cannot overlap (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(weft_own INTERFACE -Wno-restrict)
endif()
# Tables of addresses are filled at the start and read-only from then on.
target_link_options(weft_own INTERFACE LINKER:-z,relro LINKER:-z,now)
if(WEFT_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    message(FATAL_ERROR "WEFT_FUZZ: expected clang, got ${CMAKE_CXX_COMPILER_ID}; "
                        "configure with `cmake --preset fuzz`")
  endif()
  target_compile_options(weft_own INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(WEFT_SANITIZE)
  target_compile_options(weft_own INTERFACE -fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer
                                            -fno-sanitize-recover=all)
  target_link_options(weft_own INTERFACE -fsanitize=${WEFT_SANITIZE})
endif()

# weft_own_target(TARGET): the flags of our own files, for a library or program of this project.
function(weft_own_target target)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:weft_own>)
endfunction()
