#include <c10/core/InferenceMode.h>

#include <regex>
#include <span>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/models/model_files.h"
#include "tests/models/model_logits.h"
#include "tests/ops/tensor_checks.h"
#include "weft/models/decoder/decoder.h"
#include "weft/models/load/load.h"
#include "weft/models/registry.h"
#include "weft/shard/heads.h"

namespace weft::models {
namespace {

using dist::Group;
using test::expect_close;
using test::largest_difference;
using test::logits_of;
using test::model_data;
using test::on_ranks;
using test::read_reference;
using test::ReferenceLogits;
using testing::error_text;
using testing::replaced;

const std::vector<std::string> kFixtures = {"mlx/plain_f32",          "mlx/affine_b4_g64_f32",
                                            "mlx/affine_b8_g32_f32",  "mlx/affine_b3_g64_f32",
                                            "mlx/affine_b4_g128_f32", "mlx/affine_b4_g64_bf16",
                                            "mlx/mixed_override_f32"};

std::shared_ptr<const io::TensorFile> open_fixture(const std::string& name) {
  return io::TensorFile::open(model_data(name));
}

TEST(Llama, GivesTheLogitsOfThePublishedImplementation) {
  on_ranks([](const Group& group) {
    for (const std::string& name : kFixtures) {
      const ReferenceLogits expected = read_reference(model_data(name + ".ref.safetensors"));
      const LoadedModel loaded = load_model(*open_fixture(name), group);
      const at::Tensor logits_TV = logits_of(*loaded.model, expected.ids_BT);
      ASSERT_EQ(logits_TV.sizes(), expected.logits_TV.sizes()) << name;
      EXPECT_LE(largest_difference(logits_TV, expected.logits_TV), 1e-4) << name;
    }
  });
}

TEST(Llama, GivesTheLogitsOfSmolLm2OnAnyNumberOfRanks) {
  on_ranks(
      [](const Group& group) {
        const ReferenceLogits expected = read_reference(model_data("smollm2_logits.safetensors"));
        const auto file = io::TensorFile::open(test::smollm2_path());
        const LoadedModel loaded = load_model(*file, group);
        const at::Tensor logits_TV = logits_of(*loaded.model, expected.ids_BT);
        ASSERT_EQ(logits_TV.sizes(), expected.logits_TV.sizes());
        EXPECT_LE(largest_difference(logits_TV, expected.logits_TV), 1e-3);
        if (group.size() == 1 || group.rank() != 0) return;
        const LoadedModel alone = load_model(*file, Group());
        EXPECT_LE(largest_difference(logits_TV, logits_of(*alone.model, expected.ids_BT)), 1e-3);
      },
      {1, 2, 3});
}

TEST(Llama, DecodesWithACacheAsItReadsAllAtOnce) {
  on_ranks([](const Group& group) {
    for (const std::string& name : kFixtures) {
      const ReferenceLogits expected = read_reference(model_data(name + ".ref.safetensors"));
      const LoadedModel loaded = load_model(*open_fixture(name), group);
      const int64_t tokens = expected.ids_BT.size(1);
      for (const int64_t prompt : {int64_t{1}, int64_t{5}}) {
        nn::KvCache cache = loaded.model->make_cache(1, tokens);
        std::vector<at::Tensor> parts = {
            logits_of(*loaded.model, expected.ids_BT.narrow(1, 0, prompt), &cache)};
        for (int64_t t = prompt; t < tokens; ++t) {
          parts.push_back(logits_of(*loaded.model, expected.ids_BT.narrow(1, t, 1), &cache));
        }
        EXPECT_EQ(cache.length(), tokens);
        EXPECT_LE(largest_difference(at::cat(parts), expected.logits_TV), 1e-4)
            << name << " after " << prompt;
      }
    }
  });
}

TEST(Llama, ReadsSeveralTokensBehindACache) {
  on_ranks(
      [](const Group& group) {
        const ReferenceLogits expected =
            read_reference(model_data("mlx/plain_f32.ref.safetensors"));
        const LoadedModel loaded = load_model(*open_fixture("mlx/plain_f32"), group);
        nn::KvCache cache = loaded.model->make_cache(1, 12);
        std::vector<at::Tensor> parts;
        int64_t start = 0;
        for (const int64_t tokens : {5, 4, 3}) {
          const at::Tensor ids_BT = expected.ids_BT.narrow(1, start, tokens);
          parts.push_back(logits_of(*loaded.model, ids_BT, &cache));
          start += tokens;
        }
        EXPECT_LE(largest_difference(at::cat(parts), expected.logits_TV), 1e-4);
      },
      {1, 3});
}

// What whole norms and replicated kv heads add to the sum of the ranks' bytes.
int64_t replicated_llama_bytes(const ModelConfig& config, int64_t n) {
  int64_t kv_copies = -config.num_kv_heads;
  for (int64_t rank = 0; rank < n; ++rank) {
    kv_copies += shard::shard_heads(config.num_heads, config.num_kv_heads, n, rank).kv_heads.length;
  }
  const int64_t norms = (2 * config.num_layers + 1) * config.width * (n - 1);
  const int64_t kv = 2 * config.num_layers * kv_copies * config.head_dim * config.width;
  return 4 * (norms + kv);
}

void expect_weights_divided(const io::TensorFile& file, const Group& group) {
  const LoadedModel loaded = load_model(file, group);
  const at::Tensor sum = at::full({1}, loaded.model->weight_bytes(), at::kLong);
  at::Tensor total = sum.clone();
  group.all_reduce(total);
  if (group.rank() != 0) return;
  const auto whole = static_cast<double>(load_model(file, Group()).model->weight_bytes());
  const auto spread = static_cast<double>(total.item<int64_t>());
  EXPECT_GE(spread, whole) << file.path();
  EXPECT_LE(spread, 1.02 * whole + static_cast<double>(replicated_llama_bytes(
                                       loaded.model->config(), group.size())))
      << file.path();
}

TEST(Llama, HoldsEachWeightOnceOverTheRanks) {
  on_ranks(
      [](const Group& group) {
        expect_weights_divided(*open_fixture("mlx/plain_f32"), group);
        expect_weights_divided(*open_fixture("mlx/affine_b8_g32_f32"), group);
        if (group.size() <= 3) {
          expect_weights_divided(*io::TensorFile::open(test::smollm2_path()), group);
        }
      },
      {2, 3, 4});
}

TEST(Llama, CountsTheBytesOfTheFileOnOneRank) {
  const auto file = open_fixture("mlx/plain_f32");
  int64_t bytes = 0;
  for (const io::TensorMeta& meta : file->tensors()) bytes += static_cast<int64_t>(meta.num_bytes);
  EXPECT_EQ(load_model(*file, Group()).model->weight_bytes(), bytes);
}

void expect_reads_its_share(const io::TensorFile& file, const Group& group) {
  const LoadPlan plan = make_plan(file, group.size());
  uint64_t planned = 0;
  for (const PlannedWeight& weight : plan.weights()) {
    planned += plan.planned_bytes(weight, group.rank());
  }
  const io::ReadStats stats = load_model(file, group).stats;
  EXPECT_EQ(stats.planned_bytes, planned) << file.path();
  EXPECT_EQ(stats.read_bytes, planned) << file.path();
  const io::ReadStats counted = io::count_reads(plan.params(), group.rank());
  EXPECT_EQ(counted.planned_bytes, stats.planned_bytes);
  // What has to be decoded is read in chunks of rows, so large matrices take a few spans more.
  EXPECT_EQ(counted.read_bytes, stats.read_bytes);
  EXPECT_LE(counted.num_spans, stats.num_spans);
}

TEST(LoadModel, ReadsThisRanksShareAlone) {
  on_ranks([](const Group& group) {
    for (const std::string& name : kFixtures) expect_reads_its_share(*open_fixture(name), group);
    expect_reads_its_share(*io::TensorFile::open(test::smollm2_path()), group);
  });
}

TEST(LoadModel, RefusesOnAllRanksAFileThatLacksATensor) {
  // The configuration says that there is a layer more than the file has.
  const testing::TempDir folder;
  std::filesystem::copy(model_data("mlx/plain_f32"), folder.path());
  const std::string config = folder.read("config.json");
  folder.write("config.json",
               replaced(config, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"));
  on_ranks(
      [&](const Group& group) {
        const auto file = io::TensorFile::open(folder.path());
        EXPECT_EQ(
            replaced(error_text([&] { load_model(*file, group); }), file->path(), "FILE"),
            "FormatError: FILE: missing tensor 'model.layers.2.input_layernorm.weight'; near "
            "names: "
            "'model.layers.0.input_layernorm.weight', 'model.layers.1.input_layernorm.weight', "
            "'model.layers.0.post_attention_layernorm.weight'; check that it is the right model");
      },
      {2});
}

TEST(LoadModel, FailsOnAllRanksWhenTheirFilesDisagree) {
  on_ranks(
      [](const Group& group) {
        const auto file = open_fixture(group.rank() == 1 ? kFixtures[2] : kFixtures[0]);
        const std::string error = error_text([&] { load_model(*file, group); });
        EXPECT_EQ(error.find("CommError: dist.Group: model file: the ranks of group "), 0U)
            << error;
        EXPECT_NE(error.find(" disagree: rank 0: '"), std::string::npos) << error;
        EXPECT_NE(error.find("', rank 1: '"), std::string::npos) << error;
        EXPECT_NE(error.find("; give all of them the same"), std::string::npos) << error;
      },
      {2, 3});
}

// As with two checkpoints of one run on two hosts: shapes, types and names are the same.
TEST(LoadModel, FailsOnAllRanksWhenTheirWeightsOrConfigurationsDiffer) {
  const auto expect_refusal = [](const char* name, const std::string& from, const std::string& to) {
    const testing::TempDir folder;
    std::filesystem::copy(model_data("mlx/plain_f32"), folder.path());
    folder.write(name, replaced(folder.read(name), from, to));
    on_ranks(
        [&](const Group& group) {
          const auto file =
              io::TensorFile::open(group.rank() == 1 ? folder.path() : model_data("mlx/plain_f32"));
          const std::string error = error_text([&] { load_model(*file, group); });
          EXPECT_TRUE(std::regex_search(
              error, std::regex("^CommError: dist.Group: model file: .+ tensors, fingerprint "
                                "[0-9a-f]{16}, plan hash .+; give all of them the same$")))
              << error;
        },
        {2});
  };
  const auto file = io::TensorFile::open(model_data("mlx/plain_f32"));
  std::string first(8, '\0');
  const io::TensorMeta& tensor = file->tensors().front();
  file->read_at(tensor.file, tensor.offset, std::as_writable_bytes(std::span(first)));
  std::string other = first;
  other[0] = static_cast<char>(other[0] ^ 1);
  expect_refusal("model.safetensors", first, other);
  expect_refusal("config.json", "\"rope_theta\": 10000", "\"rope_theta\": 20000");
}

LoadOptions exact_options() {
  LoadOptions options;
  options.panel_activation_bits = 16;
  options.is_exact = true;
  return options;
}

TEST(LoadModel, RefusesSameBitsWhereNoSumsAreOrdered) {
  const auto file = open_fixture(kFixtures[0]);
  LoadOptions to_train = exact_options(), without_panels = exact_options();
  to_train.is_trainable = true;
  without_panels.panel_activation_bits = 0;
  for (const LoadOptions& options : {to_train, without_panels}) {
    EXPECT_EQ(error_text([&] { load_model(*file, Group(), options); }),
              "ConfigError: models.load_model: the same bits on any number of ranks, expected a "
              "model for inference whose matrices are in panels on the CPU; set "
              "panel_activation_bits, or ask for the usual sums");
  }
}

TEST(LoadModel, FailsOnAllRanksWhenSomeAskForTheSameBits) {
  on_ranks(
      [](const Group& group) {
        const auto file = open_fixture(kFixtures[0]);
        LoadOptions options = exact_options();
        options.is_exact = group.rank() == 1;
        const std::string error = error_text([&] { load_model(*file, group, options); });
        EXPECT_TRUE(std::regex_search(
            error,
            std::regex("^CommError: dist.Group: model file: .+, rank 1: '.+, the same bits "
                       "on any number of ranks by the kernels .+; give all of them the same$")))
            << error;
      },
      {2});
}

}  // namespace
}  // namespace weft::models
