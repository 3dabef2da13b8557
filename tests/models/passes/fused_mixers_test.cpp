// The fused pass of families whose token mixers are not plain attention, against the modules.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "tests/models/enlarged_family.h"
#include "tests/models/passes/pieces.h"
#include "tests/ops/tensor_checks.h"
#include "weft/models/reads_each.h"

namespace weft::models {
namespace {

using dist::Group;

const std::vector<std::string> kMixed = {"lfm2",        "qwen3_5",     "qwen3_5_moe",  "qwen3_next",
                                         "deepseek_v2", "deepseek_v3", "glm4_moe_lite"};

at::Tensor mixed_ids(int64_t batch, int64_t tokens) {
  return at::arange(batch * tokens).mul(31).remainder(61).view({batch, tokens});
}

TEST(FusedMixers, GiveWhatTheModulesGive) {
  test::on_ranks(
      [](const Group& group) {
        const c10::InferenceMode inference;
        for (const std::string& name : kMixed) {
          const auto model = test::enlarged_family(name, group);
          ASSERT_TRUE(dynamic_cast<ReadsEach&>(*model).reads_each(model->make_cache(1, 1))) << name;
          // The second is long enough for ranks to share its rows.
          for (const auto& [ids_BT, pieces] :
               {std::pair(mixed_ids(2, 9), std::vector<int64_t>{5, 1, 1, 2}),
                std::pair(mixed_ids(2, 43), std::vector<int64_t>{40, 3})}) {
            const at::Tensor whole_BTD = model->forward(ids_BT, nullptr);
            const at::Tensor got_BTD = test::in_pieces(*model, ids_BT, pieces);
            const double norm = whole_BTD.norm().item<double>();
            // Where scores are close, rounded activations pick another expert.
            EXPECT_LE((got_BTD - whole_BTD).norm().item<double>(), 0.02 * norm) << name;
          }
        }
      },
      {1, 2});
}

TEST(FusedMixers, ReadOneTokenOfEachSequenceAsAlone) {
  const c10::InferenceMode inference;
  for (const std::string& name : kMixed) {
    const auto model = test::enlarged_family(name, {});
    std::vector<nn::KvCache> alone, together;
    for (const int64_t length : {3, 7}) {
      for (std::vector<nn::KvCache>* caches : {&alone, &together}) {
        model->forward(mixed_ids(1, length), &caches->emplace_back(model->make_cache(1, 12)));
      }
    }
    const at::Tensor ids_B = at::tensor({11, 12}, at::kLong);
    const std::vector<nn::KvCache*> caches = {&together[0], &together[1]};
    const at::Tensor got_B1D = dynamic_cast<ReadsEach&>(*model).read_each(ids_B, caches);
    for (int64_t i = 0; i < 2; ++i) {
      const at::Tensor id_11 = ids_B.narrow(0, i, 1).unsqueeze(0);
      EXPECT_TRUE(
          at::equal(got_B1D.narrow(0, i, 1), model->forward(id_11, &alone[static_cast<size_t>(i)])))
          << name << " " << i;
    }
  }
}

}  // namespace
}  // namespace weft::models
