#include "weft/models/passes/fused_attention.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "tests/models/model_files.h"
#include "tests/models/passes/pieces.h"
#include "tests/ops/tensor_checks.h"
#include "weft/models/load/load.h"
#include "weft/nn/attention/attention.h"
#include "weft/nn/kernels/select.h"
#include "weft/nn/linear/panel_linear.h"

namespace weft::models {
namespace {

using test::expect_close;
using test::logits_in_pieces;
using test::seeded;

// One layer with six query heads on two kv heads.
class OneLayer {
 public:
  OneLayer(int64_t batch, int64_t head_dim, int64_t window, at::ScalarType cache_type,
           double scale = 0, int64_t rope_dim = 0)
      : batch_(batch),
        head_dim_(head_dim),
        spec_{{0, 0, 0, 0, 1, 1}, window, scale},
        rope_(rope_dim == 0 ? head_dim : rope_dim, 10000, 512),
        attention_(head_dim, {}),
        cache_({1, batch, 2, head_dim, 512, cache_type}) {}

  void leave_out_rope() { turns_ = false; }
  void round_scores() {
    rounds_scores_ = true;
    attention_ = FusedAttention(head_dim_, {.rounds_scores = true});
  }

  // A pass of so many tokens, against libtorch's attention over all so far as the cache has it.
  void check(int64_t tokens) {
    const at::Tensor q = rows(tokens, 6), k = rows(tokens, 2), v = rows(tokens, 2);
    const nn::RopeAngles angles =
        turns_ ? rope_.angles(cache_.length(), tokens) : nn::RopeAngles::none(tokens);
    const bool packs = packs_tiles(tokens);
    const auto taken = [&](const at::Tensor& x, bool rounds) {
      return (packs && rounds ? x.to(at::kBFloat16).to(at::kFloat) : x).transpose(1, 2);
    };
    const std::string what =
        core::join(tokens, " behind ", cache_.length(), ", head dim ", head_dim_, ", window ",
                   spec_.window, ", cache of ", c10::toString(cache_.dtype()));
    keys_.push_back(as_kept(angles.apply(k)));
    values_.push_back(as_kept(v));
    const at::Tensor expected = nn::grouped_query_attention(
        taken(angles.apply(q), rounds_scores_), taken(at::cat(keys_, 1), rounds_scores_),
        taken(at::cat(values_, 1), true), spec_);
    const at::Tensor q_ = q.clone(), k_ = k.clone();
    FusedAttention::Call call;
    call.batch = batch_;
    call.tokens = tokens;
    call.q = heads(q_);
    call.k = heads(k_);
    call.v = heads(v);
    call.angles = turns_ ? &angles : nullptr;
    call.spec = &spec_;
    nn::KvCache* const cache = &cache_;
    call.caches = {&cache, 1};
    const float* out = attention_.run(call);
    expect_close(at::from_blob(const_cast<float*>(out), expected.sizes()), expected, what,
                 tolerance(packs));
    cache_.advance(tokens);
  }

 private:
  bool packs_tiles(int64_t tokens) const {
    return nn::kernels::active_packed_attention() != nullptr &&
           tokens > FusedAttention::kFewTokens && nn::kernels::can_pack(head_dim_);
  }
  at::Tensor as_kept(const at::Tensor& x) const {
    if (cache_.dtype() != at::kChar) return x.to(cache_.dtype()).to(at::kFloat);
    const at::Tensor blocks = x.unflatten(-1, {-1, nn::kernels::kByteBlock});
    const at::Tensor scale = blocks.abs().amax(-1, true) / 127;
    return (at::round(blocks / scale) * scale).flatten(-2);
  }
  // Rope's own rounding may be another step of the cache's type, probabilities are rounded to
  // bfloat16.
  double tolerance(bool packs) const {
    if (cache_.dtype() == at::kChar) return 5e-3;
    if (packs) return 3e-3;
    return cache_.dtype() == at::kHalf ? 5e-4 : 1e-5;
  }
  at::Tensor rows(int64_t tokens, int64_t count) {
    return seeded({batch_, tokens, count, head_dim_}, ++seed_, at::kFloat);
  }
  FusedAttention::Heads heads(const at::Tensor& x) const {
    return {x.mutable_data_ptr<float>(), x.stride(1), x.size(2)};
  }

  int64_t batch_, head_dim_;
  nn::AttentionSpec spec_;
  nn::Rope rope_;
  FusedAttention attention_;
  nn::KvCache cache_;
  std::vector<at::Tensor> keys_, values_;
  bool turns_ = true, rounds_scores_ = false;
  uint64_t seed_ = 0;
};

void check_passes(int64_t batch, int64_t head_dim, int64_t window, at::ScalarType cache_type) {
  OneLayer layer(batch, head_dim, window, cache_type);
  for (const int64_t tokens : {3, 1, 60, 17, 16, 200, 1}) layer.check(tokens);
  OneLayer(batch, head_dim, window, cache_type).check(129);
}

TEST(FusedAttention, GivesWhatLibtorchGives) {
  const c10::InferenceMode inference;
  for (const int64_t batch : {1, 3}) {
    for (const int64_t head_dim : {16, 20, 64, 256}) {
      for (const int64_t window : {0, 5, 70}) {
        check_passes(batch, head_dim, window, at::kFloat);
        check_passes(batch, head_dim, window, at::kHalf);
        if (head_dim % nn::kernels::kByteBlock == 0) {
          check_passes(batch, head_dim, window, at::kChar);
        }
      }
    }
  }
}

TEST(FusedAttention, RoundsQueriesAndKeysWhereItMay) {
  const c10::InferenceMode inference;
  for (const at::ScalarType cache_type : {at::kFloat, at::kHalf, at::kChar}) {
    OneLayer layer(2, 64, 70, cache_type);
    layer.round_scores();
    for (const int64_t tokens : {3, 60, 17, 200}) layer.check(tokens);
  }
}

TEST(FusedAttention, TakesAnotherScaleAndRopeOfAPartOrNone) {
  const c10::InferenceMode inference;
  for (const at::ScalarType cache_type : {at::kFloat, at::kHalf, at::kChar}) {
    OneLayer layer(2, 64, 0, cache_type, 0.03, 24), unturned(2, 32, 5, cache_type, 0.4);
    unturned.leave_out_rope();
    for (const int64_t tokens : {3, 1, 60, 1, 100}) {
      layer.check(tokens);
      unturned.check(tokens);
    }
  }
}

TEST(FusedAttention, ReadsFewTokensAsOneByOneBitForBit) {
  for (const int n : {1, 2, 3}) {
    test::run_ranks(n, [](dist::World& world) {
      const c10::InferenceMode inference;
      const at::Tensor ids_BT = at::arange(20 + 16).mul(1009).remainder(49000).unsqueeze(0);
      for (const int64_t bits : {8, 16}) {
        const auto file = io::TensorFile::open(test::smollm2_path());
        const auto model = load_model(*file, world.group()).model;
        nn::put_in_panels(*model, bits);
        std::vector<int64_t> single(17, 1);
        single[0] = 20;
        const at::Tensor expected = logits_in_pieces(*model, ids_BT, single);
        for (const auto& pieces : {std::vector<int64_t>{20, 16}, {20, 4, 4, 4, 4}, {20, 9, 2, 5}}) {
          const at::Tensor logits = logits_in_pieces(*model, ids_BT, pieces);
          EXPECT_TRUE(at::equal(logits, expected))
              << bits << " bits, pieces " << core::list_text(pieces) << ", differ by "
              << (logits - expected).abs().max().item<double>();
        }
      }
    });
  }
}

}  // namespace
}  // namespace weft::models
