#include "weft/nn/parallel/shard_linear.h"

#include <fstream>

#include "tests/core/error_text.h"
#include "tests/nn/linear_cases.h"
#include "weft/nn/linear/panel_linear.h"
#include "weft/shard/heads.h"

namespace weft::nn {
namespace {

using dist::Group;
using test::expect_close;
using test::on_ranks;
using test::seeded;
using testing::error_text;

constexpr ShardKind kKinds[] = {ShardKind::kAllToSharded, ShardKind::kShardedToAll};

struct LinearCase {
  std::string name;
  MakeLinear make;
  double tolerance;
};

std::vector<LinearCase> cases() {
  const MakeLinear dense = dense_case(18, 22);
  return {
      {"dense", dense, 1e-12},
      {"dense float", dense_case(18, 22, at::kFloat), 1e-5},
      {"quantized", quantized_case(18, 160, 32), 1e-5},
      {"quantized, a group wider than a share", quantized_case(18, 128, 128), 1e-5},
      {"mxfp4", microscaled_case(18, 160, quant::Mode::kMxfp4), 1e-5},
      {"mxfp4, a group wider than a share", microscaled_case(18, 64, quant::Mode::kMxfp4), 1e-5},
      {"mxfp8", microscaled_case(18, 96, quant::Mode::kMxfp8), 1e-5},
      {"nvfp4", microscaled_case(18, 80, quant::Mode::kNvfp4), 1e-5},
      {"quantized 3 bits", quantized_case(18, 96, 32, 3), 1e-5},
      {"lora", lora_case(dense, at::kDouble), 1e-12},
      {"lora on quantized", lora_case(quantized_case(18, 128, 64), at::kFloat), 1e-5}};
}

TEST(ShardLinear, EqualsTheWholeForEveryKindOfInnerLinear) {
  on_ranks([](const Group& group) {
    for (const LinearCase& each : cases()) {
      for (const ShardKind kind : kKinds) {
        SCOPED_TRACE(each.name);
        Linear linear(each.make());
        linear->shard(kind, group);
        expect_sharded_equals_whole(each.make, linear, each.tolerance);
      }
    }
  });
}

TEST(ShardLinear, EqualsTheWholeInBfloat16ByItsEps) {
  on_ranks([](const Group& group) {
    for (const ShardKind kind : kKinds) {
      const MakeLinear make = dense_case(18, 22, at::kBFloat16);
      Linear linear(make());
      linear->shard(kind, group);
      // Two roundings of sums, each relative to the largest value.
      expect_sharded_equals_whole(make, linear, 2 * 0.0078125);
    }
  });
}

TEST(ShardLinear, CutsSegmentsOfAFusedLayerEachByItself) {
  on_ranks([](const Group& group) {
    // q, k and v of 12, 4 and 6 features: uneven in themselves and over the ranks.
    const ShardOptions fused{{12, 4, 6}, 1, "wqkv"};
    for (const ShardKind kind : kKinds) {
      const MakeLinear make = dense_case(22, 22);
      Linear linear(make());
      linear->shard(kind, group, fused);
      expect_sharded_equals_whole(make, linear);
      const auto& layout = dynamic_cast<ParallelLinearImpl&>(*linear->layer()).layout();
      EXPECT_EQ(layout.of(group.rank()).size(), 3);
    }
  });
}

TEST(ShardLinear, KeepsUnitsWhole) {
  on_ranks([](const Group& group) {
    Linear linear(dense_case(9 * 4, 6)());
    linear->shard(ShardKind::kAllToSharded, group, {{}, 4, "wq"});
    const auto parallel = std::dynamic_pointer_cast<ParallelLinearImpl>(linear->layer());
    EXPECT_EQ(parallel->inner()->out_features(),
              4 * shard::part(9, group.size(), group.rank()).length);
    EXPECT_EQ(linear->out_features(), 36) << "the whole's features";
  });
}

TEST(ShardLinear, SumsTheGradientsOfKvHeadsThatSeveralRanksHold) {
  on_ranks(
      [](const Group& group) {
        // 9 heads read 3 kv heads of 4 features; from 4 ranks on some kv heads are replicated.
        const auto layouts = shard::head_layouts(9, 3, 4, group.size());
        const auto heads = shard::shard_heads(9, 3, group.size(), group.rank());
        const auto make = dense_case(12, 5);
        Linear kv(make());
        kv->shard(ShardKind::kAllToSharded, group, layouts.kv);
        const auto whole = make();
        const at::Tensor x = seeded({7, 5}, 3), weights = seeded({7, 9, 4}, 4);
        // Each query head reads its kv head with weights of its own.
        (whole->forward(x).view({7, 3, 4}).repeat_interleave(3, 1) * weights).sum().backward();
        const at::Tensor held = kv->forward(x).view({7, -1, 4});
        const at::Tensor read =
            held.index_select(1, at::tensor(heads.kv_of_head, at::TensorOptions(at::kLong)));
        (read * weights.narrow(1, heads.heads.start, heads.heads.length)).sum().backward();
        const auto parallel = std::dynamic_pointer_cast<ParallelLinearImpl>(kv->layer());
        expect_gradients_of(*parallel->inner(), *whole, *parallel->cut(), 1e-12);
        const auto range = layouts.kv.of(group.rank()).front();
        const auto& inner = dynamic_cast<DenseLinearImpl&>(*parallel->inner());
        const auto& all = dynamic_cast<DenseLinearImpl&>(*whole);
        expect_close(inner.weight.grad(), all.weight.grad().narrow(0, range.start, range.length),
                     "this rank's copies have the whole gradient");
      },
      {1, 2, 3, 4, 5});
}

TEST(ShardLinear, GivesTheWholeBackBitForBit) {
  on_ranks([](const Group& group) {
    for (const LinearCase& each : cases()) {
      for (const ShardKind kind : kKinds) {
        SCOPED_TRACE(each.name);
        const auto whole = each.make();
        Linear linear(each.make());
        linear->shard(kind, group);
        linear->unshard();
        const auto back = linear->inner();
        ASSERT_NE(back, nullptr);
        EXPECT_TRUE(back->dense_weight().equal(whole->dense_weight()));
        EXPECT_TRUE(back->bias_or_undefined().equal(whole->bias_or_undefined()));
        const auto tensors = [](const LinearLike& layer) { return layer.named_buffers(); };
        for (const auto& item : tensors(*whole)) {
          EXPECT_TRUE(tensors(*back)[item.key()].equal(item.value())) << item.key();
        }
        for (const auto& item : whole->named_parameters()) {
          EXPECT_EQ(back->named_parameters()[item.key()].requires_grad(),
                    item.value().requires_grad())
              << item.key();
        }
      }
    }
  });
}

TEST(ShardLinear, GathersItsMasterWeightAndBias) {
  on_ranks([](const Group& group) {
    for (const ShardKind kind : kKinds) {
      const auto whole = dense_case(7, 9)();
      const auto parallel = shard_linear(*whole, kind, group);
      EXPECT_TRUE(parallel->master_weight().equal(whole->dense_weight()));
      EXPECT_TRUE(parallel->master_bias().equal(whole->bias_or_undefined()));
    }
  });
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

TEST(ShardLinear, LetsTheWholeGo) {
  on_ranks(
      [](const Group& group) {
        constexpr int64_t kRows = 16384, kColumns = 1024;
        constexpr int64_t kWholeBytes = kRows * kColumns * 4;
        for (const ShardKind kind : kKinds) {
          const int64_t before = resident_bytes();
          Linear linear(torch::nn::Linear(torch::nn::LinearOptions(kColumns, kRows)));
          const int64_t with_whole = resident_bytes() - before;
          EXPECT_GT(with_whole, kWholeBytes * 9 / 10);
          linear->shard(kind, group);
          const int64_t with_shard = resident_bytes() - before;
          EXPECT_LT(with_shard, kWholeBytes / group.size() + kWholeBytes / 8);
          EXPECT_EQ(linear->named_parameters()["inner.inner.weight"].storage().nbytes(),
                    static_cast<size_t>(kWholeBytes / group.size()));
        }
      },
      {2, 4});
}

TEST(QuantizedLinears, AreMadeFromAWholeQuantizedWeight) {
  on_ranks([](const Group& group) {
    const auto whole = quant::quantize_affine(seeded({10, 128}, 1, at::kFloat), 4, 64, at::kFloat);
    const at::Tensor dense = quant::dequantize(whole, at::kFloat);
    const at::Tensor bias = seeded({10}, 2, at::kFloat), x = seeded({3, 128}, 3, at::kFloat);
    auto column = quantized_all_to_sharded_linear(whole, bias, group);
    auto row = quantized_sharded_to_all_linear(whole, bias, group);
    const at::Tensor y = at::linear(x, dense, bias);
    expect_close(column->forward(x), last_dim_part(y, *column->cut()), "column", 1e-5);
    expect_close(row->forward(last_dim_part(x, *row->cut())), y, "row", 1e-5);
    const auto& inner = dynamic_cast<QuantizedLinearImpl&>(*row->inner());
    const auto& part = std::get<quant::AffineTensor>(inner.weight);
    const auto range = row->layout().of(group.rank()).front();
    EXPECT_TRUE(part.packed.equal(whole.packed.narrow(1, range.start / 2, range.length / 2)))
        << "packed bits are cut, not made again";
  });
}

TEST(ShardLinear, RefusesOnAllRanksAlikeAndNamesLayerSizesAndRemedy) {
  on_ranks(
      [](const Group& group) {
        const auto dense = dense_case(3, 2)();
        EXPECT_EQ(
            error_text([&] {
              shard_linear(*dense, ShardKind::kAllToSharded, group, {{}, 0, "wk"});
            }),
            "ConfigError: nn.shard_linear: wk [3, 2], output features: 3 units of 1 cannot be "
            "cut over 4 ranks; use 1 to 3 ranks");
        EXPECT_EQ(error_text([&] {
                    shard_linear(*dense, ShardKind::kAllToSharded, group, {{}, 2, "wk"});
                  }),
                  "ShapeError: nn.shard_linear: wk [3, 2], output features: size 3, expected a "
                  "positive multiple of its unit 2");
        EXPECT_EQ(error_text([&] {
                    shard_linear(*dense, ShardKind::kAllToSharded, group, {{2, 2}, 0, "wk"});
                  }),
                  "ShapeError: nn.shard_linear: wk [3, 2], output features: segments [2, 2] sum to "
                  "4, expected 3");
        Linear linear(dense_case(8, 8)());
        linear->shard(ShardKind::kShardedToAll, group);
        EXPECT_EQ(
            error_text([&] { linear->shard(ShardKind::kShardedToAll, group); }),
            "ConfigError: nn.Linear.shard: [8, 8] is cut already over group world of 4 ranks; "
            "unshard it first");
        EXPECT_EQ(error_text([&] {
                    linear->forward(at::zeros({1, 8}, at::kDouble));
                  }),
                  "ShapeError: nn.DenseLinear: input [1, 8], expected the last dim to be 2");
      },
      {4});
}

// A weight in panels, or an adapter around one, computes and can't be cut.
TEST(ShardLinear, RefusesWhatCannotBeCut) {
  on_ranks(
      [](const Group& group) {
        const std::shared_ptr<LinearLike> panels =
            in_panels(*dense_case(16, 32, at::kFloat)(), {.activation_bits = 16});
        const std::string remedy =
            ": a weft::nn::PanelLinearImpl can't be cut or joined, expected a weight in the file's "
            "order; do it before nn::put_in_panels or nn::on_cuda";
        EXPECT_EQ(error_text([&] {
                    shard_linear(*panels, ShardKind::kAllToSharded, group, {{}, 0, "wq"});
                  }),
                  "ConfigError: nn.shard_linear: wq [16, 32], output features" + remedy);
        const auto adapted = lora_case([&] { return panels; }, at::kFloat)();
        for (const ShardKind kind : kKinds) {
          EXPECT_EQ(error_text([&] { shard_linear(*adapted, kind, group); }),
                    "ConfigError: nn.LoraLinear" + remedy);
        }
        AllToShardedLinear rows(panels, group);
        EXPECT_EQ(error_text([&] { rows->unshard(); }),
                  "ConfigError: nn.AllToShardedLinear.unshard" + remedy);
      },
      {2});
}

}  // namespace
}  // namespace weft::nn
