// Latent attention between its projections, by itself and in whole passes.
#include "weft/models/passes/mixers/fused_latent.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "tests/models/enlarged_family.h"
#include "tests/models/passes/pieces.h"
#include "tests/ops/tensor_checks.h"
#include "weft/models/reads_each.h"
#include "weft/quant/panels/panel_layout.h"

namespace weft::models {
namespace {

const std::vector<std::string> kLatent = {"deepseek_v2", "deepseek_v2_lite", "deepseek_v3",
                                          "deepseek_v3_halves", "glm4_moe_lite"};

at::Tensor latent_numbers(at::IntArrayRef sizes, uint64_t seed) {
  return test::seeded(sizes, seed, at::kFloat);
}

// A layer's numbers for positions that are read in passes of some tokens.
struct LatentCase {
  static constexpr int64_t kHeads = 6;
  nn::LatentHeads heads;
  int64_t batch, positions;
  at::Tensor weight_fR, norm_R, queries_BSf, latents_BSc;
  nn::Rope rope;

  LatentCase(const nn::LatentHeads& of, int64_t num_sequences, int64_t num_positions)
      : heads(of),
        batch(num_sequences),
        positions(num_positions),
        weight_fR(latent_numbers({kHeads * (of.plain_dim + of.value_dim), of.rank}, 1) * 0.1),
        norm_R(latent_numbers({of.rank}, 2)),
        queries_BSf(latent_numbers({batch, positions, kHeads * of.key_dim()}, 3)),
        latents_BSc(latent_numbers({batch, positions, of.kept_dim()}, 4)),
        rope(of.rope_dim, 1e4, positions) {}

  FusedLatent::Layer layer() const {
    FusedLatent::Layer taken;
    taken.take_heads(heads,
                     nn::PanelLinear(quant::to_panels(weight_fR, quant::HalfPanels::kPlain)).ptr(),
                     norm_R);
    return taken;
  }
  nn::KvCache cache(int64_t num_sequences, at::ScalarType dtype) const {
    nn::KvCache::Options options;
    options.num_layers = 1;
    options.batch = num_sequences;
    options.num_kv_heads = 1;
    options.head_dim = heads.kept_dim();
    options.value_dim = 0;
    options.capacity = positions;
    options.dtype = dtype;
    return nn::KvCache(options);
  }
  // Of all positions by the formula, [B, S, n V].
  at::Tensor expected() const {
    const at::Tensor latent = latents_BSc.narrow(-1, 0, heads.rank);
    const at::Tensor mean = latent.square().mean(-1, true);
    const at::Tensor normed_BSR = latent * (mean + kLatentNormEps).rsqrt() * norm_R;
    const nn::RopeAngles angles = rope.angles(0, positions);
    const at::Tensor turned_BSP =
        angles.apply(latents_BSc.narrow(-1, heads.rank, heads.rope_dim).unsqueeze(2)).squeeze(2);
    const at::Tensor q = queries_BSf.unflatten(-1, {kHeads, heads.key_dim()});
    const at::Tensor q_BSnH = at::cat({q.narrow(-1, 0, heads.plain_dim),
                                       angles.apply(q.narrow(-1, heads.plain_dim, heads.rope_dim))},
                                      -1);
    return nn::expanded_latent_attention(q_BSnH, at::matmul(normed_BSR, weight_fR.t()), turned_BSP,
                                         heads);
  }
};

void fill_rows(const at::Tensor& part_BTf, FloatRows& rows) {
  const at::Tensor x = part_BTf.contiguous();
  std::copy_n(x.const_data_ptr<float>(), x.numel(), rows.of(x.size(0) * x.size(1), x.size(2)));
}

// Reads all positions in pieces, which `caches` share or have one each of.
at::Tensor latent_in_pieces(const LatentCase& c, const std::vector<nn::KvCache*>& caches,
                            const std::vector<int64_t>& pieces) {
  const FusedLatent::Layer layer = c.layer();
  FusedLatent latent(/*is_exact=*/false);
  latent.add_wants(layer);
  std::vector<at::Tensor> parts;
  int64_t start = 0;
  for (const int64_t tokens : pieces) {
    fill_rows(c.queries_BSf.narrow(1, start, tokens), latent.queries);
    fill_rows(c.latents_BSc.narrow(1, start, tokens), latent.latents);
    const std::vector<int64_t> starts(caches.size(), start);
    const at::Tensor places = at::arange(start, start + tokens).expand({c.batch, tokens});
    const nn::RopeAngles angles =
        caches.size() > 1 ? c.rope.angles(places) : c.rope.angles(start, tokens);
    const float* const out = latent.run(layer, {{c.batch, tokens, caches, starts}, 0, &angles});
    const int64_t features = LatentCase::kHeads * c.heads.value_dim;
    parts.push_back(
        at::from_blob(const_cast<float*>(out), {c.batch, tokens, features}, at::kFloat).clone());
    for (nn::KvCache* cache : caches) cache->advance(tokens);
    start += tokens;
  }
  return at::cat(parts, 1);
}

// A long pass after few positions makes keys and values of all heads, one after very many of some
// at a time; a shorter one, or one of small heads, reads latents as they are.
TEST(FusedLatent, MixesAsTheFormulaSays) {
  const c10::InferenceMode inference;
  const int threads = at::get_num_threads();
  for (const auto& [heads, positions, pieces] :
       {std::tuple(nn::LatentHeads{.rank = 512, .rope_dim = 8, .plain_dim = 32, .value_dim = 32},
                   int64_t{2'980}, std::vector<int64_t>{64, 2'876, 40}),
        {nn::LatentHeads{.rank = 32, .rope_dim = 32, .plain_dim = 64, .value_dim = 96},
         int64_t{150}, std::vector<int64_t>{100, 1, 30, 3, 16}}}) {
    const LatentCase c(heads, 2, positions);
    const at::Tensor expected = c.expected();
    for (const auto& [dtype, bound] :
         {std::pair(at::kFloat, 1e-4), {at::kHalf, 4e-3}, {at::kChar, 4e-2}}) {
      if (dtype == at::kChar && heads.kept_dim() % 32 != 0) continue;
      at::set_num_threads(dtype == at::kHalf ? 3 : 1);
      nn::KvCache shared = c.cache(2, dtype);
      test::expect_close(latent_in_pieces(c, {&shared}, pieces), expected,
                         core::join(positions, " positions, ", dtype), bound);
    }
    at::set_num_threads(threads);
  }
}

// Bit for bit: with caches of their own, and whatever the number of threads.
TEST(FusedLatent, GivesSequencesWithCachesOfTheirOwnTheSameBits) {
  const c10::InferenceMode inference;
  const LatentCase c({.rank = 64, .rope_dim = 16, .plain_dim = 32, .value_dim = 32}, 2, 9);
  const std::vector<int64_t> pieces(9, 1);
  nn::KvCache shared = c.cache(2, at::kHalf), first = c.cache(1, at::kHalf),
              second = c.cache(1, at::kHalf);
  const at::Tensor together = latent_in_pieces(c, {&shared}, pieces);
  EXPECT_TRUE(at::equal(latent_in_pieces(c, {&first, &second}, pieces), together));
}

at::Tensor latent_ids(int64_t tokens) {
  return at::arange(tokens).mul(31).remainder(61).view({1, tokens});
}

// Guesses are several tokens of one sequence beside others' last ones.
TEST(FusedLatent, ReadsSeveralTokensOfASequenceAsOneByOne) {
  const c10::InferenceMode inference;
  for (const std::string& name : kLatent) {
    const auto model = test::enlarged_family(name, {});
    auto& together = dynamic_cast<ReadsEach&>(*model);
    ASSERT_EQ(together.most_as_alone(model->make_cache(1, 1)), 16) << name;
    nn::KvCache longer = model->make_cache(1, 16), shorter = model->make_cache(1, 16);
    model->forward(latent_ids(7), &longer);
    model->forward(latent_ids(3), &shorter);
    const at::Tensor ids = at::tensor({11, 12, 13, 14}, at::kLong);
    const std::vector<nn::KvCache*> caches = {&longer, &longer, &longer, &shorter};
    const at::Tensor got_B1D = together.read_each(ids, caches);
    EXPECT_EQ(longer.length(), 10);
    longer.truncate(7);
    shorter.truncate(3);
    const at::Tensor piece_1TD = model->forward(ids.narrow(0, 0, 3).unsqueeze(0), &longer);
    EXPECT_TRUE(at::equal(piece_1TD.squeeze(0), got_B1D.narrow(0, 0, 3).squeeze(1))) << name;
    longer.truncate(7);
    for (int64_t i = 0; i < 4; ++i) {
      const at::Tensor alone_11D =
          model->forward(ids.narrow(0, i, 1).unsqueeze(0), caches[static_cast<size_t>(i)]);
      EXPECT_TRUE(at::equal(alone_11D, got_B1D.narrow(0, i, 1))) << name << " " << i;
    }
  }
}

// A state cannot go back to before a guess.
TEST(FusedDelta, IsReadOneTokenAtATime) {
  const auto model = test::enlarged_family("qwen3_next", {});
  EXPECT_EQ(dynamic_cast<ReadsEach&>(*model).most_as_alone(model->make_cache(1, 1)), 1);
}

}  // namespace
}  // namespace weft::models
