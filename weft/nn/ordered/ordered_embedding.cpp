#include "weft/nn/ordered/ordered_embedding.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/nn/ordered/ordered_product.h"

namespace weft::nn::ordered {
namespace {

using core::check;
using core::ShapeError;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct TableCall : torch::CustomClassHolder {
  TableCall(TableCut c, SequenceOrder o, std::shared_ptr<HeldGradient> h)
      : cut(std::move(c)), order(std::move(o)), held(std::move(h)) {}
  TableCut cut;
  SequenceOrder order;
  std::shared_ptr<HeldGradient> held;
};

// By sequence which of this rank's rows its tokens take, ascending, a row's tokens in their order.
std::vector<std::vector<AddedRow>> rows_by_sequence(const at::Tensor& ids_BT,
                                                    const shard::Range& rows,
                                                    const shard::SumPlan& order) {
  std::vector<std::vector<AddedRow>> all(order.pieces.size());
  const int64_t tokens = rows_of_each(ids_BT.numel(), order);
  const auto* ids = ids_BT.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < ids_BT.numel(); ++i) {
    const int64_t row = ids[i] - rows.start;
    const bool is_own = row >= 0 && row < rows.length;
    if (is_own) all[static_cast<size_t>(i / tokens)].push_back({row, i});
  }
  for (auto& each : all) std::ranges::stable_sort(each, {}, &AddedRow::to);
  return all;
}

// One row of the table: each sequence's sum, and these by the order. A sequence without the token
// has zeros, which change nothing.
class RowSums {
 public:
  RowSums(const float* addends, int64_t size, const shard::SumPlan& order)
      : addends_(addends),
        size_(size),
        order_(order),
        sums_(order.pieces.size() * static_cast<size_t>(size)),
        places_(order.pieces.size()) {}

  void begin() { std::ranges::fill(places_, nullptr); }
  void add(size_t sequence, int64_t from) {
    float*& place = places_[sequence];
    if (place == nullptr) {
      place = sums_.data() + sequence * static_cast<size_t>(size_);
      std::fill_n(place, size_, 0.F);
    }
    add(addends_ + from * size_, place);
  }
  void write(float* to) {
    for (const shard::SumStep& step : order_.steps) {
      float*& sum = places_[static_cast<size_t>(step.to)];
      float* const from = places_[static_cast<size_t>(step.from)];
      if (sum == nullptr || from == nullptr) {
        sum = sum == nullptr ? from : sum;
      } else {
        add(from, sum);
      }
    }
    std::copy_n(places_[static_cast<size_t>(order_.nodes.front())], size_, to);
  }

 private:
  void add(const float* from, float* to) const {
    for (int64_t i = 0; i < size_; ++i) to[i] += from[i];
  }

  const float* addends_;
  int64_t size_;
  const shard::SumPlan& order_;
  std::vector<float> sums_;
  std::vector<float*> places_;
};

// Of an embedding alone most rows are of no token.
at::Tensor sparse_gradient(const at::Tensor& g_ND, const std::vector<std::vector<AddedRow>>& added,
                           int64_t rows, const shard::SumPlan& order) {
  const int64_t D = g_ND.size(1);
  at::Tensor gradient = at::zeros({rows, D}, at::kFloat);
  struct Entry {
    int64_t to;
    size_t sequence;
    int64_t from;
  };
  std::vector<Entry> entries;
  for (size_t sequence = 0; sequence < added.size(); ++sequence) {
    for (const AddedRow& row : added[sequence]) entries.push_back({row.to, sequence, row.from});
  }
  std::ranges::stable_sort(entries, {}, &Entry::to);
  RowSums sums(g_ND.const_data_ptr<float>(), D, order);
  for (auto entry = entries.begin(); entry != entries.end();) {
    const int64_t to = entry->to;
    sums.begin();
    for (; entry != entries.end() && entry->to == to; ++entry) {
      sums.add(entry->sequence, entry->from);
    }
    sums.write(gradient.mutable_data_ptr<float>() + to * D);
  }
  return gradient;
}

struct EmbeddedFunction : torch::autograd::Function<EmbeddedFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& ids_BT,
                            const at::Tensor& table, const c10::intrusive_ptr<TableCall>& call) {
    context->save_for_backward({ids_BT});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    const at::Tensor own = table.detach().contiguous();
    const int64_t D = own.size(1);
    at::Tensor x_BTD = at::zeros({ids_BT.size(0), ids_BT.size(1), D}, at::kFloat);
    const float* from = own.const_data_ptr<float>();
    auto* to = x_BTD.mutable_data_ptr<float>();
    const auto* ids = ids_BT.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < ids_BT.numel(); ++i) {
      const int64_t row = ids[i] - call->cut.rows.start;
      if (row < 0 || row >= call->cut.rows.length) continue;
      // A zero's sign would be lost where others add their zeros.
      for (int64_t d = 0; d < D; ++d) to[i * D + d] += from[row * D + d];
    }
    call->cut.group.all_reduce(x_BTD);
    return x_BTD;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto call =
        c10::static_intrusive_pointer_cast<TableCall>(context->saved_data["call"].toCapsule());
    const at::Tensor ids_BT = context->get_saved_variables()[0];
    const at::Tensor g_ND = grads[0].flatten(0, 1).contiguous();
    const shard::SumPlan& order = *call->order;
    auto added = rows_by_sequence(ids_BT, call->cut.rows, order);
    HeldGradient head;
    if (call->held != nullptr) head = std::exchange(*call->held, HeldGradient());
    if (!head.rows_Tn.defined()) {
      return {at::Tensor(), sparse_gradient(g_ND, added, call->cut.rows.length, order),
              at::Tensor()};
    }
    Product product = gradient_product(head.rows_Tn, head.x_TD, order);
    product.addends = g_ND.const_data_ptr<float>();
    product.added = std::move(added);
    at::Tensor gradient = at::empty({product.rows, product.columns}, at::kFloat);
    multiply(product, order, gradient.mutable_data_ptr<float>());
    return {at::Tensor(), gradient, at::Tensor()};
  }
};

}  // namespace

at::Tensor embedded(const at::Tensor& ids_BT, const at::Tensor& table, const TableCut& cut,
                    const SequenceOrder& order, const std::shared_ptr<HeldGradient>& held) {
  check<ShapeError>(ids_BT.dim() == 2 && ids_BT.scalar_type() == at::kLong &&
                        ids_BT.size(0) == std::ssize(order->pieces) && table.dim() == 2 &&
                        table.scalar_type() == at::kFloat && table.is_cpu() &&
                        table.size(0) == cut.rows.length,
                    "nn.ordered: ids ", core::list_text(ids_BT.sizes()), " of a table ",
                    core::list_text(table.sizes()), ", expected int64 [", order->pieces.size(),
                    ", T] and float32 [", cut.rows.length, ", D]");
  return EmbeddedFunction::apply(ids_BT.contiguous(), table,
                                 c10::make_intrusive<TableCall>(cut, order, held));
}

}  // namespace weft::nn::ordered
