#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "weft/models/passes/experts/expert_routing.h"
#include "weft/models/passes/float_rows.h"
#include "weft/models/passes/held_linears.h"
#include "weft/nn/layers/mixture_of_experts.h"
#include "weft/nn/linear/panel_linear.h"
#include "weft/quant/panels/ordered_product.h"
#include "weft/quant/panels/panel_matrix.h"

namespace weft::models {

/// The mixtures of experts of a fused pass: what nn::MixtureOfExperts computes, before ranks sum
/// it. All experts that a pass needs are multiplied as one product whose groups of rows are theirs,
/// so a token touches the weights of its own experts alone. One for all layers, in memory that the
/// next will use again.
class FusedExperts {
 public:
  /// What a pass reads of an expert.
  struct Expert {
    quant::PanelView gate, up, down;
    int64_t ffn = 0;
    /// Biases in float32; null: none, of down also where another rank adds it to a sum over ranks.
    const float *gate_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr;
  };
  /// What it reads of a layer's mixture; valid while the linears live that it was taken from.
  struct Layer {
    quant::PanelView router;
    const float* router_bias = nullptr;
    /// Experts that this rank holds, or holds a part of, all of the same width.
    std::vector<Expert> experts;
    /// Of each expert, its place among those; -1: another rank has it.
    std::vector<int64_t> places;
    std::optional<Expert> shared;
    std::optional<quant::PanelView> shared_gate;
    nn::RoutingOptions routing;
    const float* choice_bias = nullptr;
    const float* expert_factors = nullptr;
    /// The router reads rows of its own.
    bool routes_apart = false;
    nn::Gating gating;
    /// Sums in one order; null: none. Of each held expert, the piece that it belongs to among those
    /// of the sum over experts.
    nn::MixtureSums ordered;
    std::vector<int64_t> pieces;
    /// What the views are of, and biases that none of them holds.
    std::vector<std::shared_ptr<nn::PanelLinearImpl>> linears;
    std::vector<at::Tensor> biases;
    /// The forms that router, gates and all experts' first products want of rows, the chosen
    /// experts' first products, and second products.
    quant::PanelInputs::Wants first, chosen, second;
  };

  /// A layer as the passes read it; none if one of its linears is not in panels, or experts differ
  /// in width. Notes in `held` what it takes.
  static std::optional<Layer> take(const nn::MixtureOfExperts& mixture, HeldLinears& held);
  /// From here on rows are held in the forms that the layer's linears want, too.
  void add_wants(const Layer& layer);

  /// Where the rows of a layer go before run: [rows, D], one group.
  quant::PanelInputs& inputs() { return inputs_; }
  /// And those that the router reads where it reads others.
  quant::PanelInputs& router_inputs() { return router_inputs_; }
  /// Writes this rank's part of the mixture of inputs() to `sum`, [rows, D]; sequences have
  /// `tokens` rows each. Not collective.
  void run(const Layer& layer, int64_t tokens, float* sum);
  /// The whole mixture, [rows, D], of a layer whose sums are ordered: the same bits on any number
  /// of ranks, whether they share experts as wholes or each of them. It may be written to and is
  /// valid until the next layer's. Collective: a gather for each of the layer's sums.
  float* run_ordered(const Layer& layer, int64_t tokens);

 private:
  void route(const Layer& layer);
  void take_shared_hidden(const Layer& layer, const Expert& shared, int64_t tokens);
  void run_shared(const Layer& layer, const Expert& shared, int64_t tokens, float* sum);
  float* run_shared_ordered(const Layer& layer, const Expert& shared, int64_t tokens);
  void run_chosen(const Layer& layer, int64_t tokens);
  void run_chosen_ordered(const Layer& layer, int64_t tokens);
  void take_chosen(const Layer& layer, int64_t tokens);
  void take_hidden(const Layer& layer, const Expert& expert, int64_t tokens);
  void take_chosen_hidden(const Layer& layer, int64_t tokens);
  void add_products(const Layer& layer, quant::PanelView Expert::*part, FloatRows& to);
  void add_up(const Layer& layer, float* sum) const;
  float* add_up_ordered(const Layer& layer) const;
  void add_row_ordered(const Layer& layer, int64_t row, float* nodes) const;
  void add_chosen(const Layer& layer, int64_t slot, float weight, float* sum) const;
  void scale_shared(const Layer& layer, int64_t row, float* shared) const;
  int64_t width() const { return inputs_.in_features(); }

  ExpertRouting routing_;
  /// Of all rows; of the chosen experts, one group each; and silu(gate) * up of either.
  quant::PanelInputs inputs_, router_inputs_, chosen_, hidden_;
  FloatRows logits_, shared_gates_, gate_, up_, out_;
  std::vector<quant::PanelProduct> products_;
  std::vector<quant::OrderedProduct> ordered_products_;
};

}  // namespace weft::models
