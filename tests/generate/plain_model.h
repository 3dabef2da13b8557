#pragma once

namespace weft::generate {

/// A folder with a small model of float32.
inline constexpr char kPlainModel[] = WEFT_SOURCE_DIR "/tests/models/data/mlx/plain_f32";

}  // namespace weft::generate
