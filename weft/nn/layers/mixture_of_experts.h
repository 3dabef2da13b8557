#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/dist/group.h"
#include "weft/dist/ordered_sum.h"
#include "weft/nn/layers/activation.h"
#include "weft/nn/linear/linear_like.h"

namespace weft::nn {

/// The place of a linear layer inside a module that does the communication for it: it has an inner
/// linear and knows how that was cut, but only computes.
class PartialLinearImpl : public AnyLinear, public LinearHolder {
 public:
  /// Without a cut `inner` is whole. `bias` [out], the same on all ranks: of a linear whose outputs
  /// ranks sum. Throws ShapeError unless it is as large as the cut says, or if `inner` has a bias
  /// that would be added once per rank.
  explicit PartialLinearImpl(std::shared_ptr<LinearLike> inner,
                             std::optional<LinearCut> cut = std::nullopt, at::Tensor bias = {});
  /// Of the ranks that hold a part one adds the bias; its gradient is whole on all of them.
  at::Tensor forward(const at::Tensor& x) override;
  int64_t in_features() const override;
  int64_t out_features() const override;
  std::shared_ptr<LinearLike> inner() const override { return inner_; }
  void set_inner(std::shared_ptr<LinearLike> inner) override;
  const LinearCut* cut() const override { return cut_ ? &*cut_ : nullptr; }
  /// Null where one rank has all of it: other ranks have no such expert then.
  const LinearCut* adapter_cut() const override;
  /// Whether this rank is the one that adds the bias.
  bool adds_bias() const;
  /// How many set_inner of this process have exchanged one: who holds the inner linears of
  /// thousands of experts looks at them again only when this has changed.
  static uint64_t num_exchanges();

  /// Undefined without one.
  at::Tensor bias;

 private:
  std::shared_ptr<LinearLike> inner_;
  std::optional<LinearCut> cut_;
};
TORCH_MODULE(PartialLinear);

/// What an expert's layers are called in its module: Mixtral has w1, w3 and w2.
struct ExpertNames {
  std::string gate = "gate_proj";
  std::string up = "up_proj";
  std::string down = "down_proj";
};

/// One expert, or this rank's part of it: down(gated(gate(x), up(x))), not summed over ranks.
/// Source: Shazeer 2020, arXiv:2002.05202.
class ExpertImpl : public torch::nn::Module {
 public:
  /// gate and up [f, D], down [D, f]: all three cut along one layout of the ffn, or whole.
  ExpertImpl(PartialLinear gate, PartialLinear up, PartialLinear down,
             const ExpertNames& names = {}, const Gating& gating = {});
  /// x_SD. Returns this rank's part of [S, D].
  at::Tensor forward(const at::Tensor& x_SD);
  const PartialLinear& gate() const { return gate_; }
  const PartialLinear& up() const { return up_; }
  const PartialLinear& down() const { return down_; }
  const Gating& gating() const { return gating_; }

 private:
  PartialLinear gate_, up_, down_;
  Gating gating_;
};
TORCH_MODULE(Expert);

/// Sums of a mixture that have the same bits on any number of ranks: over the features of an
/// expert, of the shared expert, and over a token's experts, whichever ranks hold them. For passes
/// that compute what the module does. Null: as they are fastest.
struct MixtureSums {
  std::shared_ptr<dist::OrderedSum> features, shared_features, experts;
};

/// What a MixtureOfExperts is made of, on one rank.
struct MixtureOfExpertsParts {
  /// Whole on every rank: [E, D]; and what its module is called.
  std::shared_ptr<LinearLike> router;
  std::string router_name = "gate";
  /// The experts that this rank holds, or holds a part of, by ascending number.
  std::vector<Expert> experts;
  std::vector<int64_t> expert_numbers;
  /// One more expert that all tokens go through, in proportion to the sigmoid of its gate [1, D],
  /// which is whole on every rank; null: none.
  /// Without a gate it counts whole.
  Expert shared = nullptr;
  std::shared_ptr<LinearLike> shared_gate = nullptr;
  /// [E], added to scores for the choice of experts alone; undefined: nothing. It has no gradient.
  at::Tensor choice_bias = {};
  /// [E], what the weights of experts are multiplied by in the end; undefined: nothing. It has no
  /// gradient. Source: transformers' Gemma4TextRouter.
  at::Tensor expert_factors = {};
  MixtureSums ordered = {};
};

/// How tokens are dealt out.
struct RoutingOptions {
  /// Experts per token.
  int64_t top_k = 1;
  /// The weights of a token's experts are divided by their sum.
  bool normalize = true;
  /// Scores are the sigmoids of the router's logits, not their softmax.
  bool has_sigmoids = false;
  /// Experts are neighbours in as many groups, of which a token takes so many: those whose so many
  /// best experts have the largest sum. Sources: DeepSeek-V3, arXiv:2412.19437; DeepSeek-V2,
  /// arXiv:2405.04434, whose groups count by one.
  int64_t num_groups = 1;
  int64_t groups_per_token = 1;
  int64_t best_of_group = 2;
  /// What weights are multiplied by in the end.
  double scale = 1;
};

/// A feed-forward layer of E experts of which each token takes the top_k that the router likes
/// most: y = sum of softmax(router(x))[e] * expert_e(x). Experts are cut over the ranks by ffn
/// (each rank a part of all) or by expert (each rank some, whole); one all-reduce for the layer
/// either way. Every rank routes for itself, so x must be the same on all to the bit.
///
/// An expert takes its tokens together; experts are summed in ascending order, on any run and for
/// any routing. While gradients are recorded, experts without tokens take part as well, so that
/// every rank has the same collectives in backward and every parameter a gradient. Modules: the
/// router, "experts.<number>", "shared_expert", "shared_expert_gate". Sources: Shazeer et al. 2017,
/// arXiv:1701.06538; Jiang et al. 2024, arXiv:2401.04088; shared expert: Qwen2-MoE,
/// arXiv:2407.10671.
class MixtureOfExpertsImpl : public torch::nn::Module {
 public:
  /// Throws ConfigError unless 1 <= top_k <= E, ShapeError for parts that don't fit, a rank
  /// without any expert, or a gate without shared expert.
  MixtureOfExpertsImpl(MixtureOfExpertsParts parts, RoutingOptions options, dist::Group group);
  /// x_BTD, whole and equal on all ranks, not yet through ops::mp_copy. Returns the same shape.
  /// Collective: one all-reduce forward, two backward (the input's gradient and the routing
  /// weights').
  at::Tensor forward(const at::Tensor& x_BTD) { return forward(x_BTD, x_BTD); }
  /// The same where the router reads something else, of x's shape, whole and equal on all ranks as
  /// well.
  at::Tensor forward(const at::Tensor& x_BTD, const at::Tensor& routed_BTD);

  int64_t num_experts() const { return router_->out_features(); }
  const PartialLinear& router() const { return router_; }
  /// Those of this rank, and their numbers.
  const std::vector<Expert>& experts() const { return experts_; }
  const std::vector<int64_t>& expert_numbers() const { return expert_numbers_; }
  /// Empty: there is none.
  const Expert& shared() const { return shared_; }
  const PartialLinear& shared_gate() const { return shared_gate_; }
  const RoutingOptions& options() const { return options_; }
  /// Undefined: there is none.
  const at::Tensor& choice_bias() const { return choice_bias_; }
  const at::Tensor& expert_factors() const { return expert_factors_; }
  const MixtureSums& ordered() const { return ordered_; }

 private:
  struct Routing;
  at::Tensor chosen(const at::Tensor& scores_SE) const;
  Routing route(const at::Tensor& x_SD) const;
  at::Tensor run_experts(const at::Tensor& x_SD, const Routing& routing);

  PartialLinear router_;
  std::vector<Expert> experts_;
  std::vector<int64_t> expert_numbers_;
  Expert shared_{nullptr};
  PartialLinear shared_gate_{nullptr};
  at::Tensor choice_bias_, expert_factors_;
  MixtureSums ordered_;
  RoutingOptions options_;
  dist::Group group_;
};
TORCH_MODULE(MixtureOfExperts);

}  // namespace weft::nn
