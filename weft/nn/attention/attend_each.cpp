#include "weft/nn/attention/attend_each.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "weft/core/error.h"
#include "weft/core/memory/scratch.h"
#include "weft/nn/kernels/select.h"

namespace weft::nn {
namespace {

// Rows of a head that lie end to end, as the kernel reads them.
at::Tensor with_rows(const at::Tensor& x_BkSH) {
  const bool is_dense = x_BkSH.stride(3) == 1 && x_BkSH.stride(2) == x_BkSH.size(3);
  return is_dense ? x_BkSH : x_BkSH.contiguous();
}

const float* head_of(const at::Tensor& x_BkSH, int64_t batch, int64_t kv, int64_t position) {
  return x_BkSH.const_data_ptr<float>() + batch * x_BkSH.stride(0) + kv * x_BkSH.stride(1) +
         position * x_BkSH.stride(2);
}

}  // namespace

at::Tensor attend_each(const at::Tensor& q_BTnH, const at::Tensor& k_BkSH, const at::Tensor& v_BkSH,
                       const AttentionSpec& spec) {
  const int64_t tokens = q_BTnH.size(1), heads = q_BTnH.size(2), dim = q_BTnH.size(3);
  const int64_t positions = k_BkSH.size(2);
  core::check<core::ShapeError>(
      k_BkSH.sizes() == v_BkSH.sizes() && k_BkSH.size(3) == dim && tokens <= positions &&
          heads == static_cast<int64_t>(spec.kv_of_head.size()),
      "nn.attend_each: queries ", core::list_text(q_BTnH.sizes()), ", keys ",
      core::list_text(k_BkSH.sizes()), " and values ", core::list_text(v_BkSH.sizes()),
      ", expected heads of one size and a place for each token");
  const at::Tensor q = (q_BTnH * spec.scale_for(dim)).contiguous();
  const at::Tensor k = with_rows(k_BkSH), v = with_rows(v_BkSH);
  const at::Tensor sinks = spec.sinks.defined() ? spec.sinks.contiguous() : at::Tensor();
  at::Tensor o = at::empty(q.sizes(), q.options());
  at::parallel_for(0, q.size(0) * tokens * heads, 1, [&](int64_t begin, int64_t end) {
    thread_local core::Scratch<float> memory;
    float* const scores = memory.make_room(kernels::cached_scores(positions));
    for (int64_t task = begin; task < end; ++task) {
      const int64_t head = task % heads, row = task / heads, batch = row / tokens;
      const int64_t seen = positions - tokens + row % tokens + 1;
      const int64_t kv = spec.kv_of_head[static_cast<size_t>(head)];
      kernels::CachedHead one;
      one.positions = spec.window == 0 ? seen : std::min(seen, spec.window);
      one.head_dim = dim;
      one.cap = static_cast<float>(spec.cap);
      if (sinks.defined()) one.sinks = sinks.const_data_ptr<float>() + head;
      one.q = q.const_data_ptr<float>() + task * dim;
      one.k = head_of(k, batch, kv, seen - one.positions);
      one.v = head_of(v, batch, kv, seen - one.positions);
      one.o = o.mutable_data_ptr<float>() + task * dim;
      kernels::active_kernel().float32_cache.attend(one, scores);
    }
  });
  return o.flatten(2);
}

}  // namespace weft::nn
