#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft::nn {

/// How rotary frequencies are changed to read more positions than a model was first trained on.
enum class RopeType {
  kDefault,
  /// All frequencies divided by the factor.
  kLinear,
  /// A base that grows with the sequence beyond the trained length.
  kDynamic,
  /// Low frequencies divided, high ones kept, a ramp between: Llama 3.1's.
  kLlama3,
  /// The same by numbers of rotations, and attention sharpened. Source: Peng et al. 2023,
  /// arXiv:2309.00071.
  kYarn,
  /// The pairs of the highest frequencies turn, the others don't; all frequencies are those of the
  /// whole head. Source: transformers' ROPE_INIT_FUNCTIONS["proportional"], for Gemma 4.
  kProportional,
  /// Each frequency divided by a number of its own, of which there is a list for the positions of
  /// the first training and one for longer contexts; attention sharpened. Source: Ding et al. 2024,
  /// arXiv:2402.13753, as transformers' ROPE_INIT_FUNCTIONS["longrope"] has it, for Phi-3.
  kLongRope,
};

/// The rope type of a name as config.json writes it ("default", "linear", "dynamic", "llama3",
/// "yarn", "longrope"), which any family may have. Throws ConfigError, beginning with `where`, that
/// lists these.
RopeType rope_type_of(const std::string& name, const std::string& where);

/// The numbers that go with a RopeType, named as in config.json; what a type does not use is
/// ignored.
struct RopeScaling {
  RopeType type = RopeType::kDefault;
  double factor = 1;
  /// dynamic, llama3, yarn, longrope: positions of the first training.
  int64_t original_positions = 0;
  /// llama3.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  /// yarn: rotations over the first training's positions at which the ramp ends and begins.
  double beta_fast = 32;
  double beta_slow = 1;
  /// yarn, longrope: what cos and sin are multiplied by; none: derived from the factor, and with
  /// yarn from the two below.
  std::optional<double> attention_factor = std::nullopt;
  double mscale = 0;
  double mscale_all_dim = 0;
  /// yarn: the ramp's ends are whole dims.
  bool truncate = true;
  /// proportional: which part of the pairs turns.
  double turned_part = 1;
  /// longrope: what each frequency is divided by, in contexts of at most the original positions and
  /// in longer ones.
  std::vector<double> short_factors = {};
  std::vector<double> long_factors = {};

  bool operator==(const RopeScaling&) const = default;
};

/// Yarn's 0.1 mscale ln(factor) + 1, and 1 for a factor of at most 1.
double yarn_sharpening(double factor, double mscale);

/// Longrope's root of 1 + ln(factor) / ln(original positions), and 1 for a factor of at most 1.
double long_rope_sharpening(const RopeScaling& scaling);

/// What latent attention multiplies scores by for a scaled rope, beside what cos and sin are
/// multiplied by: the square of yarn_sharpening by mscale_all_dim, and 1 without that. Source:
/// DeepSeek V2's and V3's own modeling code.
double latent_sharpening(const RopeScaling& scaling);

/// Throws ConfigError, beginning with `where`, for numbers that make no frequencies: not finite, a
/// factor below 1, no original positions where the type needs them, llama3's factors not ascending,
/// a part that is none, lists of other lengths than each other, or of no positive numbers.
void check_rope_scaling(const RopeScaling& scaling, const std::string& where);

}  // namespace weft::nn
