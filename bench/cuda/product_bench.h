#pragma once

namespace weft::bench {

/// Times products on the shapes of an 8B Llama, each run on other weights so that the GPU's cache
/// makes no difference: of few rows beside the plainest kernel, of many rows for all forms of
/// matrices with the error against float64, and other tilings of these. Prints lines.
void time_products();

}  // namespace weft::bench
