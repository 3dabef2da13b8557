#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::quant {

/// The ways to keep a matrix as small numbers, named as MLX names them.
enum class Mode {
  /// AffineTensor: 2, 3, 4, 5, 6 or 8 bits in groups of any size.
  kAffine,
  /// MicroscaledTensor: the other three.
  kMxfp4,
  kMxfp8,
  kNvfp4,
};

/// What a mode is called and what it has when nothing else is asked for; for all but affine, there
/// is nothing else.
struct ModeInfo {
  const char* name;
  int64_t bits;
  int64_t group_size;
};

/// The properties of `mode`.
const ModeInfo& mode_info(Mode mode);

/// The mode called `name`. Throws ConfigError beginning with `where`, which lists the modes.
Mode parse_mode(std::string_view name, const std::string& where);

/// How a matrix is to be quantized, or was.
struct Scheme {
  Mode mode = Mode::kAffine;
  int64_t bits = 4;
  int64_t group_size = 64;
  /// What scales and offsets of affine are kept as; the other modes keep scales of one byte.
  at::ScalarType scale_dtype = at::kFloat;

  bool operator==(const Scheme&) const = default;
};

/// The scheme of `mode` with these bits and this group size; 0: the mode's own. Throws ConfigError
/// beginning with `where` for any that the mode does not have.
Scheme make_scheme(Mode mode, int64_t bits, int64_t group_size, const std::string& where);

/// Throws ConfigError as make_scheme does.
void check_scheme(const Scheme& scheme, const std::string& where);

/// For people: "affine 4-bit g64", "mxfp4"; "mxfp4 g16" for a rank's part that cuts quant groups.
std::string scheme_text(const Scheme& scheme);

/// The inverse of scheme_text, with scales of float32; what the text leaves out is the mode's own.
/// Throws ConfigError beginning with `where`.
Scheme parse_scheme(const std::string& text, const std::string& where);

}  // namespace weft::quant
