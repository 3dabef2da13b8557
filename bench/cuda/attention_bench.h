#pragma once

namespace weft::bench {

/// Times attention with the heads of an 8B Llama: of one token after many positions, of few tokens,
/// and of prompts, with the error against float64. Prints lines.
void time_attention();

}  // namespace weft::bench
