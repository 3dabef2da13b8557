#include "weft/quant/scheme.h"

#include <array>
#include <charconv>
#include <optional>
#include <sstream>

#include "weft/core/error.h"

namespace weft::quant {
namespace {

using core::check;
using core::ConfigError;

/// In the order of Mode.
constexpr std::array<ModeInfo, 4> kInfos = {
    {{"affine", 4, 64}, {"mxfp4", 4, 32}, {"mxfp8", 8, 32}, {"nvfp4", 4, 16}}};

/// The positive number between `prefix` and `suffix`, if `word` is such.
std::optional<int64_t> number_in(std::string_view word, std::string_view prefix,
                                 std::string_view suffix) {
  if (!word.starts_with(prefix) || !word.ends_with(suffix)) return std::nullopt;
  if (word.size() <= prefix.size() + suffix.size()) return std::nullopt;
  word.remove_prefix(prefix.size());
  word.remove_suffix(suffix.size());
  int64_t number = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, number);
  if (error != std::errc() || stop != end || number < 1) return std::nullopt;
  return number;
}

}  // namespace

const ModeInfo& mode_info(Mode mode) { return kInfos.at(static_cast<size_t>(mode)); }

Mode parse_mode(std::string_view name, const std::string& where) {
  for (size_t i = 0; i < kInfos.size(); ++i) {
    if (name == kInfos[i].name) return static_cast<Mode>(i);
  }
  core::fail<ConfigError>(where, ": mode, expected one of affine, mxfp4, mxfp8, nvfp4, got ",
                          core::quote(name), "; name one of these");
}

void check_scheme(const Scheme& scheme, const std::string& where) {
  const ModeInfo& own = mode_info(scheme.mode);
  if (scheme.mode != Mode::kAffine) {
    check<ConfigError>(scheme.bits == own.bits && scheme.group_size == own.group_size, where, ": ",
                       own.name, ", expected ", own.bits, " bits in groups of ", own.group_size,
                       ", got ", scheme.bits, " bits in groups of ", scheme.group_size,
                       "; leave both out, or use mode affine");
    return;
  }
  check<ConfigError>(scheme.bits >= 2 && scheme.bits <= 8 && scheme.bits != 7, where,
                     ": bits, expected one of 2, 3, 4, 5, 6, 8, got ", scheme.bits,
                     "; choose one of these");
  check<ConfigError>(scheme.group_size >= 1, where,
                     ": group size, expected a positive number, got ", scheme.group_size,
                     "; use 32, 64 or 128");
}

Scheme make_scheme(Mode mode, int64_t bits, int64_t group_size, const std::string& where) {
  const ModeInfo& own = mode_info(mode);
  const Scheme scheme{mode, bits == 0 ? own.bits : bits,
                      group_size == 0 ? own.group_size : group_size};
  check_scheme(scheme, where);
  return scheme;
}

std::string scheme_text(const Scheme& scheme) {
  const ModeInfo& own = mode_info(scheme.mode);
  if (scheme.mode == Mode::kAffine) {
    return core::join(own.name, " ", scheme.bits, "-bit g", scheme.group_size);
  }
  if (scheme.group_size == own.group_size) return own.name;
  return core::join(own.name, " g", scheme.group_size);
}

Scheme parse_scheme(const std::string& text, const std::string& where) {
  std::istringstream words(text);
  std::string word;
  words >> word;
  const Mode mode = parse_mode(word, where);
  int64_t bits = 0, group_size = 0;
  while (words >> word) {
    const auto as_bits = number_in(word, "", "-bit"), as_group = number_in(word, "g", "");
    check<ConfigError>(as_bits || as_group, where, ": ", core::quote(word),
                       ", expected a number of bits as 4-bit or a group size as g64");
    if (as_bits) bits = *as_bits;
    if (as_group) group_size = *as_group;
  }
  return make_scheme(mode, bits, group_size, where);
}

}  // namespace weft::quant
