#include "weft/nn/attention/rotary_attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "weft/core/error.h"
#include "weft/nn/attention/attention.h"
#include "weft/nn/attention/sequence_runs.h"
#include "weft/nn/kernels/select.h"

// Shape letters: B batch, T tokens, H head dim, P the same padded; n, k: this rank's heads and kv
// heads.

namespace weft::nn {
namespace {

using kernels::AttentionHead;
using kernels::kTile;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// What the pass depends on beside tensors.
struct Call : torch::CustomClassHolder {
  std::vector<SequenceRun> runs;
  AttentionSpec spec;
  /// Of rope.
  at::Tensor cos, sin;
};
using CallPtr = c10::intrusive_ptr<Call>;

// Rows of one head of a [B, T, heads, H] tensor, as float32 and back.
class HeadRows {
 public:
  HeadRows(const at::Tensor& x_BTnH, const SequenceRun& run, int64_t head)
      : element_(x_BTnH.scalar_type() == at::kFloat ? &kernels::active_kernel().float32
                                                    : &kernels::active_kernel().bfloat16),
        stride_(x_BTnH.stride(1) * x_BTnH.element_size()),
        head_dim_(x_BTnH.size(3)) {
    const int64_t first =
        run.batch * x_BTnH.stride(0) + run.start * x_BTnH.stride(1) + head * x_BTnH.stride(2);
    data_ = static_cast<char*>(x_BTnH.data_ptr()) + first * x_BTnH.element_size();
  }

  void read(int64_t row, float* to) const { element_->widen(at(row), to, head_dim_); }
  void write(int64_t row, const float* from) const { element_->narrow(from, at(row), head_dim_); }

 private:
  char* at(int64_t row) const { return data_ + row * stride_; }

  const kernels::ElementKernel* element_;
  char* data_ = nullptr;
  int64_t stride_;
  int64_t head_dim_;
};

// Turns rows of a run as rope does, and back.
class Turns {
 public:
  // cos, sin: float32, contiguous, [T, 1, dim] or [B, T, 1, dim].
  Turns(const at::Tensor& cos, const at::Tensor& sin, const SequenceRun& run) : dim_(cos.size(-1)) {
    const int64_t row = run.start + (cos.dim() == 4 ? run.batch * cos.size(1) : 0);
    cos_ = cos.const_data_ptr<float>() + row * dim_;
    sin_ = sin.const_data_ptr<float>() + row * dim_;
  }

  void turn(int64_t row, float* x) const { rotate(row, x, 1); }
  void turn_back(int64_t row, float* x) const { rotate(row, x, -1); }

 private:
  void rotate(int64_t row, float* x, float sign) const {
    kernels::active_kernel().rotate(x, cos_ + row * dim_, sin_ + row * dim_, dim_, sign);
  }

  int64_t dim_;
  const float* cos_;
  const float* sin_;
};

// Float32 memory for one run and one kv head: its rows padded to P, and in tiles.
class Buffers {
 public:
  Buffers(int64_t tokens, int64_t head_dim)
      : tokens_(tokens),
        rows_(round_up(tokens, kTile)),
        padded_(round_up(head_dim, 16)),
        memory_(at::empty({kPlaces * rows_ * padded_ + 2 * rows_ +
                           kernels::half_attend_scratch(tokens, padded_)})) {}

  enum Place { kQ, kK, kV, kKT, kVT, kO, kDO, kDQ, kDK, kDV, kPlaces };
  float* at(Place place) const { return base() + place * rows_ * padded_; }
  float* lse() const { return base() + kPlaces * rows_ * padded_; }
  float* delta() const { return lse() + rows_; }
  float* scratch() const { return delta() + rows_; }
  int64_t padded() const { return padded_; }

  // Fills place with rows, each padded and then changed by `change`(row, data).
  template <class Change>
  void read(const HeadRows& from, int64_t head_dim, Place place, Change&& change) const {
    float* to = at(place);
    for (int64_t row = 0; row < tokens_; ++row, to += padded_) {
      from.read(row, to);
      std::fill(to + head_dim, to + padded_, 0.F);
      change(row, to);
    }
  }

  template <class Change>
  void write(Place place, const HeadRows& to, Change&& change) const {
    float* from = at(place);
    for (int64_t row = 0; row < tokens_; ++row, from += padded_) {
      change(row, from);
      to.write(row, from);
    }
  }

  void clear(Place place) const { std::fill_n(at(place), tokens_ * padded_, 0.F); }

  // `to` = tiles of [P, kTile] of the rows in `from`, with zeros after the last row.
  void transpose(Place from, Place to) const {
    for (int64_t first = 0; first < rows_; first += kTile) {
      const float* rows = at(from) + first * padded_;
      float* tile = at(to) + first * padded_;
      const int64_t count = std::min(kTile, tokens_ - first);
      for (int64_t h = 0; h < padded_; ++h) {
        for (int64_t c = 0; c < count; ++c) tile[h * kTile + c] = rows[c * padded_ + h];
        std::fill(tile + h * kTile + count, tile + (h + 1) * kTile, 0.F);
      }
    }
  }

  AttentionHead head(int64_t window, float cap, float sink) const {
    AttentionHead head;
    head.cap = cap;
    head.sink = sink;
    head.tokens = tokens_;
    head.head_dim = padded_;
    head.window = window == 0 ? tokens_ : std::min(window, tokens_);
    head.q = at(kQ);
    head.k = at(kK);
    head.v = at(kV);
    head.kt = at(kKT);
    head.vt = at(kVT);
    head.o = at(kO);
    head.lse = lse();
    head.d_o = at(kDO);
    head.delta = delta();
    head.d_q = at(kDQ);
    head.d_k = at(kDK);
    head.d_v = at(kDV);
    return head;
  }

 private:
  float* base() const { return memory_.mutable_data_ptr<float>(); }

  int64_t tokens_;
  int64_t rows_;
  int64_t padded_;
  at::Tensor memory_;
};

// The tensors of a pass and of its backward.
struct Tensors {
  at::Tensor q, k, v, cos, sin, o;
  /// float32 [n], or undefined.
  at::Tensor sinks;
  /// float32 [B, n, T].
  at::Tensor lse;
  at::Tensor d_o, d_q, d_k, d_v;
};

// All query heads of one run that read one kv head.
class KvHeadTask {
 public:
  KvHeadTask(const Tensors& tensors, const Call& call, const SequenceRun& run, int64_t kv)
      : tensors_(tensors),
        call_(call),
        run_(run),
        kv_(kv),
        head_dim_(tensors.q.size(3)),
        scale_(call.spec.scale_for(head_dim_)),
        half_(tensors.q.scalar_type() == at::kBFloat16 ? kernels::active_half_attention()
                                                       : nullptr),
        turns_(tensors.cos, tensors.sin, run),
        buffers_(run.length, head_dim_) {}

  void forward() {
    read_keys();
    for_heads([&](int64_t head) {
      read_queries(head);
      const AttentionHead one = head_of(head);
      half_ != nullptr ? half_->attend(one, buffers_.scratch())
                       : kernels::active_kernel().attend(one, buffers_.scratch());
      buffers_.write(Buffers::kO, {tensors_.o, run_, head}, [](int64_t, float*) {});
      std::copy_n(buffers_.lse(), run_.length, saved_lse(head));
    });
  }

  void backward() {
    read_keys();
    if (half_ == nullptr) buffers_.transpose(Buffers::kV, Buffers::kVT);
    buffers_.clear(Buffers::kDK);
    buffers_.clear(Buffers::kDV);
    for_heads([&](int64_t head) {
      read_queries(head);
      read_output(head);
      const AttentionHead one = head_of(head);
      half_ != nullptr ? half_->attend_backward(one, buffers_.scratch())
                       : kernels::active_kernel().attend_backward(one, buffers_.scratch());
      buffers_.write(Buffers::kDQ, {tensors_.d_q, run_, head}, [&](int64_t row, float* x) {
        for (int64_t i = 0; i < head_dim_; ++i) x[i] *= scale_;
        turns_.turn_back(row, x);
      });
    });
    buffers_.write(Buffers::kDK, {tensors_.d_k, run_, kv_},
                   [&](int64_t row, float* x) { turns_.turn_back(row, x); });
    buffers_.write(Buffers::kDV, {tensors_.d_v, run_, kv_}, [](int64_t, float*) {});
  }

 private:
  AttentionHead head_of(int64_t head) const {
    const float sink = tensors_.sinks.defined() ? tensors_.sinks.const_data_ptr<float>()[head]
                                                : -std::numeric_limits<float>::infinity();
    return buffers_.head(call_.spec.window, static_cast<float>(call_.spec.cap), sink);
  }

  template <class Use>
  void for_heads(Use&& use) {
    for (size_t head = 0; head < call_.spec.kv_of_head.size(); ++head) {
      if (call_.spec.kv_of_head[head] == kv_) use(static_cast<int64_t>(head));
    }
  }

  void read_keys() {
    buffers_.read({tensors_.k, run_, kv_}, head_dim_, Buffers::kK,
                  [&](int64_t row, float* x) { turns_.turn(row, x); });
    if (half_ == nullptr) buffers_.transpose(Buffers::kK, Buffers::kKT);
    buffers_.read({tensors_.v, run_, kv_}, head_dim_, Buffers::kV, [](int64_t, float*) {});
  }

  void read_queries(int64_t head) {
    buffers_.read({tensors_.q, run_, head}, head_dim_, Buffers::kQ, [&](int64_t row, float* x) {
      turns_.turn(row, x);
      for (int64_t i = 0; i < head_dim_; ++i) x[i] *= scale_;
    });
  }

  void read_output(int64_t head) {
    buffers_.read({tensors_.o, run_, head}, head_dim_, Buffers::kO, [](int64_t, float*) {});
    const float* o = buffers_.at(Buffers::kO);
    const int64_t padded = buffers_.padded();
    buffers_.read({tensors_.d_o, run_, head}, head_dim_, Buffers::kDO, [&](int64_t row, float* x) {
      float sum = 0;
      for (int64_t i = 0; i < head_dim_; ++i) sum += x[i] * o[row * padded + i];
      buffers_.delta()[row] = sum;
    });
    std::copy_n(saved_lse(head), run_.length, buffers_.lse());
  }

  float* saved_lse(int64_t head) const {
    const at::Tensor& lse = tensors_.lse;
    return lse.mutable_data_ptr<float>() + (run_.batch * lse.size(1) + head) * lse.size(2) +
           run_.start;
  }

  const Tensors& tensors_;
  const Call& call_;
  const SequenceRun& run_;
  int64_t kv_;
  int64_t head_dim_;
  float scale_;
  const kernels::HalfAttention* half_;
  Turns turns_;
  Buffers buffers_;
};

template <class Run>
void for_tasks(const Tensors& tensors, const Call& call, Run&& run) {
  const int64_t num_kv = tensors.k.size(2);
  const auto tasks = static_cast<int64_t>(call.runs.size()) * num_kv;
  at::parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;
    for (int64_t task = begin; task < end; ++task) {
      KvHeadTask head(tensors, call, call.runs[static_cast<size_t>(task / num_kv)], task % num_kv);
      run(head);
    }
  });
}

// A sink's share has no value, so its score's gradient is minus the share times what the values'
// shares say together.
at::Tensor sink_gradients(const Tensors& tensors) {
  const at::Tensor shares_BnT = at::exp(tensors.sinks.view({1, -1, 1}) - tensors.lse);
  const at::Tensor said_BTn = (tensors.o.to(at::kFloat) * tensors.d_o.to(at::kFloat)).sum(-1);
  return (shares_BnT * said_BTn.transpose(1, 2)).sum(at::IntArrayRef{0, 2}).neg();
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::Tensor& sinks, const CallPtr& call) {
    Tensors tensors;
    tensors.q = q;
    tensors.k = k;
    tensors.v = v;
    tensors.cos = call->cos;
    tensors.sin = call->sin;
    if (sinks.numel() > 0) tensors.sinks = sinks;
    tensors.o = at::empty(q.sizes(), q.options());
    tensors.lse = at::empty({q.size(0), q.size(2), q.size(1)}, at::kFloat);
    for_tasks(tensors, *call, [](KvHeadTask& task) { task.forward(); });
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->save_for_backward({q, k, v, tensors.cos, tensors.sin, tensors.o, tensors.lse, sinks});
    return tensors.o;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    core::check<core::ConfigError>(!at::GradMode::is_enabled(),
                                   "nn.rotary_attention: a gradient of the gradient is not "
                                   "defined; call backward without create_graph");
    const auto call =
        c10::static_intrusive_pointer_cast<Call>(context->saved_data["call"].toCapsule());
    const variable_list saved = context->get_saved_variables();
    Tensors tensors{saved[0], saved[1], saved[2], saved[3], saved[4], saved[5],
                    {},       saved[6], {},       {},       {},       {}};
    if (saved[7].numel() > 0) tensors.sinks = saved[7];
    tensors.d_o = grads[0].stride(3) == 1 ? grads[0] : grads[0].contiguous();
    tensors.d_q = at::empty(tensors.q.sizes(), tensors.q.options());
    tensors.d_k = at::empty(tensors.k.sizes(), tensors.k.options());
    tensors.d_v = at::empty(tensors.v.sizes(), tensors.v.options());
    for_tasks(tensors, *call, [](KvHeadTask& task) { task.backward(); });
    const at::Tensor d_sinks = tensors.sinks.defined() ? sink_gradients(tensors) : at::Tensor();
    return {tensors.d_q, tensors.d_k, tensors.d_v, d_sinks, at::Tensor()};
  }
};

bool is_of_kernel_type(const at::Tensor& x) {
  return x.device().is_cpu() && x.stride(-1) == 1 &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

void check_shapes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const AttentionSpec& spec) {
  core::check<core::ShapeError>(
      q.dim() == 4 && k.dim() == 4 && k.sizes() == v.sizes() && q.size(0) == k.size(0) &&
          q.size(1) == k.size(1) && q.size(3) == k.size(3) &&
          q.size(2) == static_cast<int64_t>(spec.kv_of_head.size()),
      "nn.rotary_attention: q ", core::list_text(q.sizes()), ", k ", core::list_text(k.sizes()),
      " and v ", core::list_text(v.sizes()), " with ", spec.kv_of_head.size(),
      " heads mapped, expected [B, T, heads, H] with B, T and H the same");
}

}  // namespace

at::Tensor composed_rotary_attention(const at::Tensor& q_BTnH, const at::Tensor& k_BTkH,
                                     const at::Tensor& v_BTkH, const RopeAngles& angles,
                                     const AttentionSpec& spec, const at::Tensor& documents_BT) {
  check_shapes(q_BTnH, k_BTkH, v_BTkH, spec);
  return grouped_query_attention(angles.apply(q_BTnH).transpose(1, 2),
                                 angles.apply(k_BTkH).transpose(1, 2), v_BTkH.transpose(1, 2), spec,
                                 documents_BT);
}

at::Tensor rotary_attention(const at::Tensor& q_BTnH, const at::Tensor& k_BTkH,
                            const at::Tensor& v_BTkH, const RopeAngles& angles,
                            const AttentionSpec& spec, const at::Tensor& documents_BT) {
  check_shapes(q_BTnH, k_BTkH, v_BTkH, spec);
  if (angles.turns_neighbours()) {
    return rotary_attention(angles.apply(q_BTnH), angles.apply(k_BTkH), v_BTkH,
                            RopeAngles::none(q_BTnH.size(1)), spec, documents_BT);
  }
  const bool is_one_type =
      q_BTnH.scalar_type() == k_BTkH.scalar_type() && k_BTkH.scalar_type() == v_BTkH.scalar_type();
  std::optional<std::vector<SequenceRun>> runs;
  if (is_one_type && is_of_kernel_type(q_BTnH) && is_of_kernel_type(k_BTkH) &&
      is_of_kernel_type(v_BTkH) && angles.fits(q_BTnH)) {
    runs = sequence_runs(documents_BT, q_BTnH.size(0), q_BTnH.size(1));
  }
  if (!runs) return composed_rotary_attention(q_BTnH, k_BTkH, v_BTkH, angles, spec, documents_BT);
  auto call = c10::make_intrusive<Call>();
  call->runs = std::move(*runs);
  call->spec = spec;
  call->spec.sinks = at::Tensor();
  // Of no sinks an empty one: autograd takes none that is undefined.
  const at::Tensor sinks =
      spec.sinks.defined() ? spec.sinks.to(at::kFloat) : at::empty({0}, at::kFloat);
  call->cos = angles.cos().contiguous();
  call->sin = angles.sin().contiguous();
  return AttentionFunction::apply(q_BTnH, k_BTkH, v_BTkH, sinks, call).flatten(2);
}

}  // namespace weft::nn
