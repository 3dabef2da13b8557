# xgrammar, which says what tokens a grammar allows: WEFT_HAS_XGRAMMAR says whether its sources are there. ./start
# unpacks those of requirements.lock into .deps/xgrammar. They are compiled into a library of ours, so programs need
# nothing more at run time.
set(WEFT_XGRAMMAR AUTO CACHE STRING "Grammars by xgrammar: AUTO (if its sources are found), ON or OFF")
set_property(CACHE WEFT_XGRAMMAR PROPERTY STRINGS AUTO ON OFF)
set(WEFT_XGRAMMAR_ROOT ${weft_SOURCE_DIR}/.deps/xgrammar CACHE PATH "The folder of xgrammar's sources")
set(WEFT_HAS_XGRAMMAR FALSE)
if(WEFT_XGRAMMAR AND EXISTS ${WEFT_XGRAMMAR_ROOT}/include/xgrammar/xgrammar.h)
  set(WEFT_HAS_XGRAMMAR TRUE)
elseif(WEFT_XGRAMMAR AND NOT WEFT_XGRAMMAR STREQUAL "AUTO")
  message(FATAL_ERROR "xgrammar: not in ${WEFT_XGRAMMAR_ROOT}; run ./start setup, or configure with WEFT_XGRAMMAR=OFF")
endif()
message(STATUS "grammars: ${WEFT_HAS_XGRAMMAR}")

# weft_add_xgrammar(TARGET): the library, linked by TARGET alone. Its warnings go to TARGET's code
# (XGRAMMAR_LOG_CUSTOMIZE), which takes them for errors.
function(weft_add_xgrammar target)
  file(GLOB_RECURSE sources ${WEFT_XGRAMMAR_ROOT}/cpp/*.cc)
  list(FILTER sources EXCLUDE REGEX "/tvm_ffi/")
  add_library(weft_xgrammar STATIC ${sources})
  target_include_directories(weft_xgrammar SYSTEM PUBLIC
    $<BUILD_INTERFACE:${WEFT_XGRAMMAR_ROOT}/include>
    $<BUILD_INTERFACE:${WEFT_XGRAMMAR_ROOT}/3rdparty/picojson>
    $<BUILD_INTERFACE:${WEFT_XGRAMMAR_ROOT}/3rdparty/dlpack/include>)
  target_compile_definitions(weft_xgrammar PRIVATE XGRAMMAR_LOG_CUSTOMIZE=1 XGRAMMAR_ENABLE_CPPTRACE=0
                                                   XGRAMMAR_ENABLE_INTERNAL_CHECK=0)
  # In few pieces and lightly optimized: compiling it takes a quarter of the time, and a mask hardly longer.
  # With sanitizers an optimized one takes three times as long to compile as one that is not.
  target_compile_options(weft_xgrammar PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O1> -w)
  # Sanitizers and fuzzers watch it as they watch weft: its texts come from whoever asks.
  if(WEFT_SANITIZE)
    target_compile_options(weft_xgrammar PRIVATE -fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer
                                                 -fno-sanitize-recover=all)
  endif()
  if(WEFT_FUZZ)
    target_compile_options(weft_xgrammar PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  set_target_properties(weft_xgrammar PROPERTIES EXPORT_NAME xgrammar CXX_STANDARD 17
                                                 UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 7)
  target_link_libraries(${target} PRIVATE weft_xgrammar)
endfunction()
