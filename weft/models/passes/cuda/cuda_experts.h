#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "weft/cuda/buffer.h"
#include "weft/cuda/kernels/experts/experts.h"
#include "weft/cuda/kernels/experts/routing.h"
#include "weft/models/passes/held_linears.h"
#include "weft/nn/layers/mixture_of_experts.h"
#include "weft/nn/linear/cuda_linear.h"

namespace weft::models {

/// The mixtures of experts of the pass on a GPU: what nn::MixtureOfExperts computes, before ranks
/// sum it. The GPU routes rows and finds the matrices of the experts that they take, so nothing
/// travels and a pass can be recorded. One for all layers, in memory that the next will use again.
class CudaExperts {
 public:
  using Linear = std::shared_ptr<nn::CudaLinearImpl>;

  /// Of the shared expert.
  struct Shared {
    Linear gate, up, down;
    cuda::Buffer gate_bias, up_bias, down_bias;
    /// Null: it counts whole.
    Linear router;
  };
  /// What a pass reads of a layer's mixture.
  struct Layer {
    Linear router;
    cuda::Buffer router_bias, choice_bias, factors, places;
    /// Views of all held experts' matrices, in the GPU's memory.
    cuda::Buffer gate_views, up_views, down_views;
    cuda::ExpertMatrices gate, up, down;
    /// Of all held experts together; of down also empty where another rank adds it.
    cuda::Buffer gate_bias, up_bias, down_bias;
    std::optional<Shared> shared;
    nn::RoutingOptions routing;
    cuda::Gating gating;
    int64_t num_experts = 0, num_held = 0;
    bool can_take_few_rows = false;
    /// What the views are of.
    std::vector<Linear> linears;
  };

  /// A layer as the passes read it; none if an expert's linear is not on the GPU, experts differ in
  /// width, or there are more than cuda::kMostExperts. Notes in `held` what it takes.
  static std::optional<Layer> take(const nn::MixtureOfExperts& mixture, HeldLinears& held);

  /// Makes room for `rows` rows of the layer. Returns whether memory has moved.
  bool make_room(const Layer& layer, int64_t rows);
  /// Writes this rank's part of the mixture of x to `sum`; both [rows, D] in the GPU's memory,
  /// apart from each other, with room made before. Not collective.
  void run(const Layer& layer, const float* x, int64_t rows, float* sum);

 private:
  cuda::RoutingCall routing_call(const Layer& layer, int64_t rows) const;
  void score(const Layer& layer, const float* x, int64_t rows);
  void run_shared(const Shared& shared, const cuda::Gating& gating, const float* x, int64_t rows,
                  float* sum);
  void add_up(const Layer& layer, const cuda::RoutingCall& routing, float* sum) const;

  /// Of rows and all experts; of rows.
  cuda::Buffer logits_, scores_, shared_gates_;
  /// Of pairs (cuda::RoutingCall), or of slots.
  cuda::Buffer chosen_, weights_, slots_, row_of_slot_, tiles_;
  cuda::Buffer hidden_, up_, out_;
};

/// As kernels have it.
cuda::Gating cuda_gating(const nn::Gating& gating);
/// The numbers in float32 on this process's GPU; empty if the tensor is undefined.
cuda::Buffer floats_on_cuda(const at::Tensor& tensor);
/// The same of whole numbers.
cuda::Buffer ints_on_cuda(const std::vector<int64_t>& values);

}  // namespace weft::models
