#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "weft/models/config/config.h"

namespace weft::models {

/// What a decoder may compute otherwise than the plain one, which is Llama's: norms before
/// attention and feed-forward layer, rope of whole heads in all layers, no biases, no factors.
enum class Option : uint8_t {
  kWindows,
  kQkvBias,
  kOutputBias,
  kMlpBias,
  kNormsOfEachHead,
  kNormsOfAllHeads,
  kNormsAfter,
  kNormsBeforeAndAfter,
  kPartialRope,
  kLayersWithoutRope,
  kEmbeddingScale,
  kAttentionScale,
  kResidualScale,
  kLogitsScale,
  kExperts,
  kGelu,
  kClampedGate,
  kScoreCap,
  kLogitsCap,
  kRopeOfWindows,
  kQueryGrowth,
  kSinks,
  kRouterBias,
  kExpertBias,
  kTurnsNeighbours,
  kSigmoidRouting,
  kUngatedSharedExpert,
  kShortConvolutions,
  kLatentAttention,
  kGatedDeltaNets,
  kGatedAttention,
  kHeadsByLayer,
  kNormsOfValues,
  kLayerFactors,
  kFfnBesideExperts,
  kLayerInputs,
  kReusedKeys,
};

inline constexpr Option kLastOption = Option::kReusedKeys;

/// Some of them; a value of 8 bytes.
class OptionSet {
 public:
  constexpr OptionSet() = default;
  constexpr OptionSet(std::initializer_list<Option> options) {
    for (const Option option : options) add(option);
  }
  static constexpr OptionSet all() {
    OptionSet all;
    all.bits_ = 2 * bit_of(kLastOption) - 1;
    return all;
  }
  constexpr void add(Option option) { bits_ |= bit_of(option); }
  constexpr bool has(Option option) const { return (bits_ & bit_of(option)) != 0; }
  constexpr bool is_empty() const { return bits_ == 0; }
  /// Those that are not in `others`.
  constexpr OptionSet without(OptionSet others) const {
    OptionSet rest;
    rest.bits_ = bits_ & ~others.bits_;
    return rest;
  }
  constexpr bool operator==(const OptionSet&) const = default;

 private:
  static constexpr uint64_t bit_of(Option option) {
    return uint64_t{1} << static_cast<uint64_t>(option);
  }

  uint64_t bits_ = 0;
};

/// The options of `config` that differ from the plain decoder. It names every field of ModelConfig,
/// so a field that is added there does not compile before it is decided here whether a pass has to
/// know it.
OptionSet options_in_use(const ModelConfig& config);

/// For messages: "norms after layers, experts".
std::string names_of(OptionSet options);

}  // namespace weft::models
