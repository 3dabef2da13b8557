#include "weft/nn/ordered/ordered_heads.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "weft/core/error.h"
#include "weft/nn/layers/norm.h"

namespace weft::nn::ordered {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct HeadCall : torch::CustomClassHolder {
  HeadCall(HeadCut c, bool k, SequenceOrder o) : cut(std::move(c)), of_kv(k), order(std::move(o)) {}
  HeadCut cut;
  bool of_kv;
  // Of normed_heads alone.
  SequenceOrder order;

  int64_t num_heads() const { return of_kv ? cut.num_kv_heads : cut.num_heads; }
  const shard::Range& own() const { return of_kv ? cut.own.kv_heads : cut.own.heads; }
  // Whether this rank's copy of its head i stands for the whole's.
  bool counts(int64_t i) const { return !of_kv || cut.is_first_with(own().start + i); }
};
using HeadCallPtr = c10::intrusive_ptr<HeadCall>;

void save_call(AutogradContext* context, const HeadCallPtr& call) {
  context->saved_data["call"] = c10::IValue::make_capsule(call);
}

HeadCallPtr saved_call(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<HeadCall>(context->saved_data["call"].toCapsule());
}

struct CopyFunction : Function<CopyFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_BTkH,
                            const HeadCallPtr& call) {
    save_call(context, call);
    return x_BTkH.index_select(2, at::tensor(call->cut.own.kv_of_head, at::kLong));
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const HeadCut& cut = saved_call(context)->cut;
    at::Tensor g_BTnH = grads[0];
    int64_t first = cut.own.heads.start;
    if (cut.shares_kv_heads()) {
      g_BTnH = cut.group.all_gather(g_BTnH, 2, cut.heads_of_rank);
      first = 0;
    }
    std::vector<int64_t> sizes = grads[0].sizes().vec();
    sizes[2] = cut.own.kv_heads.length;
    at::Tensor d_BTkH = at::zeros(sizes, at::kFloat);
    for (int64_t k = 0; k < sizes[2]; ++k) {
      const int64_t head = (cut.own.kv_heads.start + k) * cut.heads_per_kv() - first;
      at::Tensor sum = d_BTkH.select(2, k);
      for (int64_t i = 0; i < cut.heads_per_kv(); ++i) sum.add_(g_BTnH.select(2, head + i));
    }
    return {d_BTkH, at::Tensor()};
  }
};

// sum[h] += the products of x and g over their tokens, one after another.
void add_products(const at::Tensor& x_NH, const at::Tensor& g_NH, int64_t step, float* sum) {
  const int64_t H = x_NH.size(1);
  const float* x = x_NH.const_data_ptr<float>();
  const float* g = g_NH.const_data_ptr<float>();
  for (int64_t row = 0; row < x_NH.size(0); row += step) {
    for (int64_t h = 0; h < H; ++h) sum[h] += x[row * H + h] * g[row * H + h];
  }
}

struct ScaleFunction : Function<ScaleFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_BTnH,
                            const at::Tensor& weight_H, const HeadCallPtr& call) {
    save_call(context, call);
    context->save_for_backward({x_BTnH, weight_H});
    return x_BTnH * weight_H;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    return {grads[0] * saved[1], weight_gradient(saved[0], grads[0], *saved_call(context)),
            at::Tensor()};
  }

 private:
  // Every head's own sum is on all ranks before the first is added: the others' zeros add nothing.
  static at::Tensor weight_gradient(const at::Tensor& x_BTnH, const at::Tensor& g_BTnH,
                                    const HeadCall& call) {
    const int64_t B = x_BTnH.size(0), n = x_BTnH.size(2), H = x_BTnH.size(3);
    const at::Tensor x_BNH = x_BTnH.contiguous().view({B, -1, H});
    const at::Tensor g_BNH = g_BTnH.contiguous().view({B, -1, H});
    at::Tensor heads = at::zeros({B, call.num_heads(), H}, at::kFloat);
    for (int64_t b = 0; b < B; ++b) {
      for (int64_t i = 0; i < n; ++i) {
        if (!call.counts(i)) continue;
        const int64_t rows = x_BNH.size(1) - i;
        add_products(x_BNH[b].narrow(0, i, rows), g_BNH[b].narrow(0, i, rows), n,
                     heads[b][call.own().start + i].mutable_data_ptr<float>());
      }
    }
    call.cut.group.all_reduce(heads);
    at::Tensor sums = at::zeros({B, H}, at::kFloat);
    for (int64_t head = 0; head < call.num_heads(); ++head) sums.add_(heads.select(1, head));
    return summed_parts(sums, *call.order);
  }
};

}  // namespace

bool HeadCut::shares_kv_heads() const {
  int64_t start = 0;
  for (const int64_t heads : heads_of_rank) {
    if (start % heads_per_kv() != 0) return true;
    start += heads;
  }
  return false;
}

at::Tensor copied_to_heads(const at::Tensor& x_BTkH, const HeadCut& cut) {
  return CopyFunction::apply(x_BTkH, c10::make_intrusive<HeadCall>(cut, true, nullptr));
}

at::Tensor normed_heads(const at::Tensor& x_BTnH, const at::Tensor& weight_with_offset_H,
                        double eps, const HeadCut& cut, bool of_kv, const SequenceOrder& order) {
  core::check<core::ShapeError>(x_BTnH.size(0) == std::ssize(order->pieces), "nn.ordered: heads ",
                                core::list_text(x_BTnH.sizes()), ", expected those of ",
                                order->pieces.size(), " sequences");
  return ScaleFunction::apply(unit_norm(x_BTnH, eps), weight_with_offset_H,
                              c10::make_intrusive<HeadCall>(cut, of_kv, order));
}

}  // namespace weft::nn::ordered
