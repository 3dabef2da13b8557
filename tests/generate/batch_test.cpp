#include "weft/generate/batch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "tests/models/model_files.h"
#include "tests/support/run_ranks.h"
#include "weft/models/load/load.h"
#include "weft/nn/linear/panel_linear.h"

namespace weft::generate {
namespace {

using test::run_ranks;
using testing::error_text;

std::shared_ptr<models::CausalLM> real_model(const dist::World& world) {
  const auto file = io::TensorFile::open(test::smollm2_path());
  auto model = models::load_model(*file, world.group()).model;
  nn::put_in_panels(*model, 16);
  return model;
}

at::Tensor prompts(int64_t sequences, int64_t tokens) {
  return at::arange(sequences * tokens).mul(997).remainder(49000).view({sequences, tokens});
}

bool always() { return true; }

TEST(GenerateBatch, ContinuesEachSequenceAsIfItWereAlone) {
  for (const int n : {1, 2, 3}) {
    run_ranks(n, [](dist::World& world) {
      const auto model = real_model(world);
      const at::Tensor prompts_BT = prompts(5, 7);
      const BatchResult all = generate_batch(*model, prompts_BT, 6, always);
      EXPECT_EQ(all.tokens_BT.sizes(), at::IntArrayRef({5, 6}));
      EXPECT_GT(all.prefill_seconds, 0);
      EXPECT_GT(all.decode_seconds, 0);
      for (int64_t i = 0; i < 5; ++i) {
        const BatchResult one = generate_batch(*model, prompts_BT.narrow(0, i, 1), 6, always);
        EXPECT_TRUE(at::equal(one.tokens_BT, all.tokens_BT.narrow(0, i, 1))) << "sequence " << i;
      }
    });
  }
}

// Logits of a prompt and of two tokens behind it, one by one.
at::Tensor all_logits(models::CausalLM& model, const at::Tensor& ids_BT) {
  const c10::InferenceMode inference;
  nn::KvCache cache = model.make_cache(ids_BT.size(0), ids_BT.size(1));
  std::vector<at::Tensor> parts = {model.forward(ids_BT.narrow(1, 0, 5), &cache)};
  for (const int64_t at : {5, 6}) parts.push_back(model.forward(ids_BT.narrow(1, at, 1), &cache));
  return model.logits(at::cat(parts, 1));
}

TEST(GenerateBatch, GivesEachSequenceItsOwnLogitsBitForBit) {
  for (const int n : {1, 2, 3}) {
    run_ranks(n, [](dist::World& world) {
      const auto model = real_model(world);
      const at::Tensor ids_BT = prompts(9, 7);
      const at::Tensor all = all_logits(*model, ids_BT);
      for (const int64_t i : {0, 4, 8}) {
        const at::Tensor one = all_logits(*model, ids_BT.narrow(0, i, 1));
        EXPECT_TRUE(at::equal(one, all.narrow(0, i, 1))) << "sequence " << i;
      }
    });
  }
}

TEST(GenerateBatch, EndsWhenRankZeroSaysSo) {
  run_ranks(2, [](dist::World& world) {
    const auto model = real_model(world);
    int left = 3;
    const auto result = generate_batch(*model, prompts(2, 3), 6, [&] {
      EXPECT_EQ(world.rank(), 0);
      return left-- > 0;
    });
    EXPECT_EQ(result.tokens_BT.sizes(), at::IntArrayRef({2, 3}));
    EXPECT_EQ(generate_batch(*model, prompts(2, 3), 0, always).tokens_BT.size(1), 0);
  });
}

TEST(GenerateBatch, RefusesWhatItCannotRead) {
  run_ranks(1, [](dist::World& world) {
    const auto model = real_model(world);
    const auto refusal = [&](const at::Tensor& prompts_BT, int64_t new_tokens) {
      return error_text([&] { generate_batch(*model, prompts_BT, new_tokens, always); });
    };
    EXPECT_EQ(refusal(at::empty({2, 0}, at::kLong), 1),
              "ConfigError: generate.generate_batch: prompts, expected int64 [sequences, tokens], "
              "at least one of each");
    EXPECT_EQ(refusal(at::full({1, 1}, 49152, at::kLong), 1),
              "ConfigError: generate.generate_batch: tokens from 49152 to 49152, expected 0 to "
              "49151");
    EXPECT_EQ(refusal(prompts(1, 3), 8190),
              "ConfigError: generate.generate_batch: 3 tokens and 8190 new ones, expected at most "
              "8192 for this model");
  });
}

}  // namespace
}  // namespace weft::generate
