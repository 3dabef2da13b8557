#include "weft/models/passes/pass_table.h"

#include <array>
#include <optional>

#ifdef WEFT_HAS_CUDA
#include "weft/models/passes/cuda/cuda_decoder.h"
#endif
#include "weft/models/passes/fused_decoder.h"
#include "weft/nn/adapters/adapted_linear.h"

namespace weft::models {
namespace {

// Null where there is none that all families have.
std::shared_ptr<nn::LinearLike> usual_linear(const PassParts& parts) {
  for (const DecoderBlock& block : parts.blocks) {
    if (!block->attention().is_empty()) return block->attention()->parts().q_proj->inner();
    if (!block->feed_forward().is_empty()) return block->feed_forward()->gate_proj()->inner();
  }
  return nullptr;
}

// All linears of a model are moved together, so one tells.
template <class Impl>
bool holds_linears_as(const PassParts& parts) {
  auto linear = usual_linear(parts);
  const auto* const adapted = dynamic_cast<const nn::AdaptedLinearImpl*>(linear.get());
  if (adapted != nullptr) linear = adapted->base();
  return std::dynamic_pointer_cast<Impl>(linear) != nullptr;
}

template <class Made>
std::unique_ptr<Pass> make_pass(const PassParts& parts) {
  return std::make_unique<Made>(parts);
}

constexpr OptionSet kPanelsKnow = {
    Option::kWindows,
    Option::kQkvBias,
    Option::kOutputBias,
    Option::kMlpBias,
    Option::kNormsOfEachHead,
    Option::kNormsOfAllHeads,
    Option::kNormsAfter,
    Option::kPartialRope,
    Option::kLayersWithoutRope,
    Option::kEmbeddingScale,
    Option::kAttentionScale,
    Option::kResidualScale,
    Option::kLogitsScale,
    Option::kExperts,
    Option::kNormsBeforeAndAfter,
    Option::kGelu,
    Option::kClampedGate,
    Option::kScoreCap,
    Option::kLogitsCap,
    Option::kRopeOfWindows,
    Option::kQueryGrowth,
    Option::kSinks,
    Option::kRouterBias,
    Option::kExpertBias,
    Option::kTurnsNeighbours,
    Option::kSigmoidRouting,
    Option::kUngatedSharedExpert,
    Option::kHeadsByLayer,
    Option::kNormsOfValues,
    Option::kLayerFactors,
    Option::kFfnBesideExperts,
    Option::kLayerInputs,
    Option::kReusedKeys,
    Option::kShortConvolutions,
    Option::kLatentAttention,
    Option::kGatedDeltaNets,
    Option::kGatedAttention,
};

#ifdef WEFT_HAS_CUDA
constexpr OptionSet kCudaKnows = {Option::kWindows,
                                  Option::kQkvBias,
                                  Option::kOutputBias,
                                  Option::kMlpBias,
                                  Option::kNormsOfEachHead,
                                  Option::kPartialRope,
                                  Option::kLayersWithoutRope,
                                  Option::kEmbeddingScale,
                                  Option::kAttentionScale,
                                  Option::kResidualScale,
                                  Option::kLogitsScale,
                                  Option::kGelu,
                                  Option::kClampedGate,
                                  Option::kExperts,
                                  Option::kRouterBias,
                                  Option::kExpertBias,
                                  Option::kSigmoidRouting,
                                  Option::kUngatedSharedExpert,
                                  Option::kScoreCap,
                                  Option::kLogitsCap,
                                  Option::kNormsBeforeAndAfter,
                                  Option::kRopeOfWindows,
                                  Option::kQueryGrowth,
                                  Option::kTurnsNeighbours,
                                  Option::kSinks};
#endif

}  // namespace

std::span<const PassRow> pass_table() {
  static const std::array rows = {
#ifdef WEFT_HAS_CUDA
      PassRow{"the GPU", kCudaKnows, std::nullopt,
              "every product moves its numbers between the processor and the GPU",
              holds_linears_as<nn::CudaLinearImpl>, make_pass<CudaDecoder>},
#endif
      PassRow{"weights in panels", kPanelsKnow, kPanelsKnow, "each token takes longer",
              holds_linears_as<nn::PanelLinearImpl>, make_pass<FusedDecoder>},
  };
  return rows;
}

}  // namespace weft::models
