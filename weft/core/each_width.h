#pragma once

/// Before a function's definition: compiles it for each width of vectors that processors have, of
/// which the program takes the widest that runs. Where the bits must be the same in all of them,
/// the file is compiled with -ffp-contract=off. Source: GCC's manual, "Common Function Attributes",
/// target_clones.
#if defined(__x86_64__) && defined(__GNUC__)
#define WEFT_FOR_EACH_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WEFT_FOR_EACH_WIDTH
#endif
