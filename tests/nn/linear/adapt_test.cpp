#include "weft/nn/linear/adapt.h"

#include <torch/nn/modules/container/sequential.h>

#include "tests/core/error_text.h"
#include "tests/nn/linear_cases.h"

namespace weft::nn {
namespace {

using dist::Group;
using test::expect_close;
using test::leaf;
using test::on_ranks;
using test::seeded;
using testing::error_text;

quant::Scheme affine(int64_t bits, int64_t group_size) {
  return {quant::Mode::kAffine, bits, group_size};
}

/// Two layers of a user's model, of which the first feeds the second.
struct Mlp : torch::nn::Module {
  explicit Mlp(at::ScalarType dtype = at::kFloat)
      : up(register_module("up", Linear(dense_case(96, 64, dtype)()))),
        down(register_module("down", Linear(dense_case(10, 96, dtype)()))) {}

  at::Tensor forward(const at::Tensor& x) { return down->forward(at::tanh(up->forward(x))); }
  /// 96 features in units of 8: with 4 ranks edges lie within quant groups of 32.
  void shard(const Group& group) {
    up->shard(ShardKind::kAllToSharded, group, {{}, 8, "up"});
    down->shard(ShardKind::kShardedToAll, group, {{}, 8, "down"});
  }

  Linear up, down;
};

using Change = std::function<void(Mlp&)>;

// Output and every trainable gradient of the model's one step.
struct Step {
  at::Tensor y, x_grad;
};

Step step_of(Mlp& mlp) {
  const at::Tensor x = leaf(seeded({5, 64}, 7, at::kFloat));
  const at::Tensor y = mlp.forward(x);
  y.backward(seeded({5, 10}, 8, at::kFloat));
  return {y.detach(), x.grad()};
}

void expect_equal_layers(Linear& one, Linear& other, const std::string& what) {
  const auto& a = dynamic_cast<ParallelLinearImpl&>(*one->layer());
  const auto& b = dynamic_cast<ParallelLinearImpl&>(*other->layer());
  EXPECT_TRUE(a.inner()->dense_weight().equal(b.inner()->dense_weight())) << what;
  for (const auto& item : a.inner()->named_parameters()) {
    const at::Tensor grad = item.value().grad();
    const at::Tensor* found = b.inner()->named_parameters().find(item.key());
    ASSERT_NE(found, nullptr) << what << item.key();
    EXPECT_EQ(found->requires_grad(), item.value().requires_grad()) << what << item.key();
    ASSERT_EQ(found->grad().defined(), grad.defined()) << what << item.key();
    if (grad.defined()) expect_close(found->grad(), grad, what + item.key(), 1e-6);
  }
}

// `change` before sharding, after it, and without: the same numbers.
void expect_order_does_not_matter(const Change& change) {
  on_ranks([&](const Group& group) {
    Mlp whole, before, after;
    change(whole);
    const Step expected = step_of(whole);
    change(before);
    before.shard(group);
    after.shard(group);
    change(after);
    for (Mlp* mlp : {&before, &after}) {
      const Step got = step_of(*mlp);
      expect_close(got.y, expected.y, "output", 1e-5);
      expect_close(got.x_grad, expected.x_grad, "gradient of the input", 1e-5);
    }
    expect_equal_layers(before.up, after.up, "up ");
    expect_equal_layers(before.down, after.down, "down ");
    for (Linear* linear : {&before.up, &before.down}) {
      const auto& parallel = dynamic_cast<ParallelLinearImpl&>(*(*linear)->layer());
      const auto path = linear == &before.up ? 0 : 1;
      const auto reference = find_linears(whole)[path].holder->inner();
      expect_gradients_of(*parallel.inner(), *reference, *parallel.cut(), 1e-5);
    }
  });
}

TEST(Quantize, BeforeOrAfterShardingGivesTheSameBits) {
  expect_order_does_not_matter([](Mlp& mlp) {
    for (const at::Tensor& parameter : mlp.parameters()) parameter.set_requires_grad(false);
    EXPECT_EQ(quantize(mlp, affine(4, 32)), 2);
  });
}

TEST(Quantize, BeforeOrAfterShardingGivesTheSameBitsInEveryMode) {
  for (const quant::Mode mode : {quant::Mode::kMxfp4, quant::Mode::kMxfp8, quant::Mode::kNvfp4}) {
    expect_order_does_not_matter([mode](Mlp& mlp) {
      for (const at::Tensor& parameter : mlp.parameters()) parameter.set_requires_grad(false);
      const auto scheme = quant::make_scheme(mode, 0, 0, "test");
      EXPECT_EQ(quantize(mlp, scheme), 2);
      const auto& inner = dynamic_cast<QuantizedLinearImpl&>(*find_linears(mlp)[0].holder->inner());
      EXPECT_EQ(quant::scheme_of(inner.weight).mode, mode);
    });
  }
}

TEST(ApplyLora, BeforeOrAfterShardingGivesTheSameResult) {
  expect_order_does_not_matter([](Mlp& mlp) {
    EXPECT_EQ(apply_lora(mlp, {"up", "down"}, {4, 8, 3}), 2);
    // B begins at zero, which would hide A.
    for (const HeldLinear& held : find_linears(mlp)) {
      auto& lora = dynamic_cast<LoraLinearImpl&>(*held.holder->inner());
      const LinearCut* cut = held.holder->cut();
      const at::Tensor b = seeded({held.path == "up" ? 96 : 10, 4}, 9, at::kFloat);
      const bool by_rows = cut != nullptr && cut->kind == ShardKind::kAllToSharded;
      const at::NoGradGuard no_grad;
      lora.lora_b.copy_(by_rows ? own_part(b, *cut) : b);
    }
  });
}

TEST(ApplyLora, WorksOnQuantizedBasesInAnyOrder) {
  expect_order_does_not_matter([](Mlp& mlp) {
    quantize(mlp, affine(4, 32));
    apply_lora(mlp, {"up", "down"}, {4, 8, 3});
  });
  expect_order_does_not_matter([](Mlp& mlp) {
    apply_lora(mlp, {"up", "down"}, {4, 8, 3});
    quantize(mlp, affine(4, 32));
  });
}

TEST(ApplyLora, TrainsTheAdaptersOfAShardedModelLikeTheWholes) {
  on_ranks([](const Group& group) {
    Mlp whole, sharded;
    apply_lora(whole, {"up", "down"}, {4, 8, 3});
    sharded.shard(group);
    apply_lora(sharded, {"up", "down"}, {4, 8, 3});
    for (int step = 0; step < 4; ++step) {
      for (Mlp* mlp : {&whole, &sharded}) {
        mlp->zero_grad();
        step_of(*mlp);
        const at::NoGradGuard no_grad;
        for (const at::Tensor& parameter : mlp->parameters()) {
          if (parameter.grad().defined()) parameter.sub_(parameter.grad(), 0.01);
        }
      }
    }
    expect_close(step_of(sharded).y, step_of(whole).y, "after 4 steps", 1e-5);
    merge_lora(sharded);
    expect_close(step_of(sharded).y, step_of(whole).y, "merged", 1e-5);
    EXPECT_EQ(unmerge_lora(sharded), 2);
    EXPECT_EQ(fuse_lora(sharded), 2);
    expect_close(step_of(sharded).y, step_of(whole).y, "fused", 1e-5);
    sharded.up->unshard();
    sharded.down->unshard();
    expect_close(step_of(sharded).y, step_of(whole).y, "whole again", 1e-5);
  });
}

TEST(Quantize, TakesThePlacesThatThePredicateNames) {
  Mlp mlp;
  EXPECT_EQ(quantize(mlp, affine(8, 32), [](const auto& path) { return path == "up"; }), 1);
  EXPECT_NE(std::dynamic_pointer_cast<QuantizedLinearImpl>(mlp.up->inner()), nullptr);
  EXPECT_NE(std::dynamic_pointer_cast<DenseLinearImpl>(mlp.down->inner()), nullptr);
}

TEST(FindLinears, NamesPlacesHoweverManyLayersAreWrapped) {
  Mlp mlp;
  mlp.shard(Group());
  apply_lora(mlp, {"up"});
  const auto found = find_linears(mlp);
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[0].path, "up");
  EXPECT_EQ(found[1].path, "down");
}

TEST(ApplyLora, RefusesWhatItWouldOtherwiseLeaveOutWithoutAWord) {
  Mlp mlp;
  EXPECT_EQ(error_text([&] {
              apply_lora(mlp, {"up", "gate"});
            }),
            "ConfigError: nn.apply_lora: no layer 'gate'; there are [up, down]");
  apply_lora(mlp, {"up"});
  EXPECT_EQ(error_text([&] { apply_lora(mlp, {"up"}); }),
            "ConfigError: nn.apply_lora: up has an adapter already; name other targets");
  torch::nn::Sequential plain{torch::nn::Linear(4, 4)};
  EXPECT_EQ(error_text([&] { apply_lora(*plain, {"0"}); }),
            "ConfigError: nn.apply_lora: 0 is a torch::nn::Linear, whose place cannot take another "
            "layer; make the member a weft::nn::Linear");
}

TEST(Quantize, RefusesWhatDoesNotFit) {
  Mlp mlp;
  EXPECT_EQ(
      error_text([&] { quantize(mlp, affine(4, 128)); }),
      "ConfigError: nn.quantize: up: 64 input features, expected a multiple of the group size "
      "128; use another or leave it out by predicate");
  EXPECT_EQ(error_text([&] { quantize(mlp, affine(7, 32)); }),
            "ConfigError: nn.quantize: bits, expected one of 2, 3, 4, 5, 6, 8, got 7; choose one "
            "of these");
  EXPECT_EQ(error_text([&] { quantize(mlp, {}, [](const auto&) { return false; }); }),
            "ConfigError: nn.quantize: no layer to quantize; there are [up, down]");
  quantize(mlp, affine(4, 32));
  EXPECT_EQ(error_text([&] { quantize(mlp, affine(4, 32)); }),
            "ConfigError: nn.quantize: up is quantized already; leave it out by predicate");
}

}  // namespace
}  // namespace weft::nn
