#include "weft/train/optimizer/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/core/error_text.h"
#include "tests/support/run_ranks.h"
#include "tests/train/sharded.h"
#include "weft/io/load_tensor.h"
#include "weft/io/tensor_file.h"
#include "weft/train/optimizer/elementwise.h"
#include "weft/train/optimizer/muon.h"

namespace weft::train {
namespace {

using testing::MeshPlace;
using testing::OwnedParts;
using testing::part_of;
using testing::put_in_wholes;
using testing::random_wholes;
using testing::set_gradients;
using testing::set_masters;
using testing::Wholes;
using weft::testing::error_text;

const MeshPlace kMeshes[] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {1, 3, 1},
                             {2, 2, 1}, {1, 2, 2}, {2, 1, 2}, {1, 1, 4}};

class Goldens {
 public:
  Goldens()
      : file_(io::TensorFile::open(WEFT_SOURCE_DIR "/tests/train/data/optimizers.safetensors")) {}

  std::string text(const std::string& key) const {
    return std::get<std::string>(file_->metadata().at(key));
  }
  nlohmann::json settings(const std::string& name) const {
    return nlohmann::json::parse(text(name));
  }
  at::Tensor tensor(const std::string& name) const {
    return io::load_tensor(*file_, name, at::kFloat);
  }

 private:
  std::shared_ptr<const io::TensorFile> file_;
};

const std::vector<std::string> kNames = {"matrix", "wide", "vector", "cube"};

// All parameters whole, end to end in two buffers.
std::vector<OwnedSlice> whole_slices(const Goldens& goldens, double weight_decay) {
  std::vector<at::Tensor> befores;
  for (const std::string& name : kNames) {
    befores.push_back(goldens.tensor("before." + name).flatten());
  }
  const at::Tensor masters = at::cat(befores);
  const at::Tensor gradients = at::zeros_like(masters);
  std::vector<OwnedSlice> slices;
  int64_t start = 0;
  for (const std::string& name : kNames) {
    const at::Tensor before = goldens.tensor("before." + name);
    const int64_t length = before.numel();
    const double decay = decays_matrices(name, before.dim()) ? weight_decay : 0;
    slices.push_back({{name, before.sizes().vec(), {}, 0, {0, length}},
                      masters.narrow(0, start, length),
                      gradients.narrow(0, start, length),
                      decay});
    start += length;
  }
  return slices;
}

// Updates as often as the goldens do; gradients are given doubled, to be halved in the pass.
void expect_goldens(const std::string& name, const OptimizerOptions& options) {
  const Goldens goldens;
  const auto slices = whole_slices(goldens, goldens.settings(name).at("weight_decay"));
  const auto optimizer = make_optimizer(options, slices, dist::Group());
  const int64_t steps = std::stoll(goldens.text("steps"));
  for (int64_t step = 0; step < steps; ++step) {
    for (const OwnedSlice& owned : slices) {
      const std::string key = core::join("gradient.", step, ".", owned.slice.name);
      at::Tensor gradient = owned.gradient;
      gradient.copy_(goldens.tensor(key).flatten() * 2);
    }
    optimizer->step(std::stod(goldens.text("lr")), 0.5);
  }
  EXPECT_EQ(optimizer->num_steps(), steps);
  for (const OwnedSlice& owned : slices) {
    const at::Tensor golden = goldens.tensor(name + "." + owned.slice.name).flatten();
    EXPECT_TRUE(at::allclose(owned.master, golden, 1e-5, 1e-6))
        << name << " " << owned.slice.name << ": "
        << (owned.master - golden).abs().max().item<float>();
    EXPECT_FALSE(
        at::allclose(golden, goldens.tensor("before." + owned.slice.name).flatten(), 1e-3));
  }
}

TEST(Optimizer, AdamwIsThatOfPyTorch) {
  AdamwOptions options;
  const auto settings = Goldens().settings("adamw");
  options.beta1 = settings.at("betas")[0];
  options.beta2 = settings.at("betas")[1];
  options.epsilon = settings.at("eps");
  expect_goldens("adamw", options);
}

TEST(Optimizer, SgdIsThatOfPyTorch) {
  for (const std::string name : {"sgd", "sgd_nesterov"}) {
    const auto settings = Goldens().settings(name);
    expect_goldens(name, SgdOptions{settings.at("momentum"), settings.at("nesterov")});
  }
}

TEST(Optimizer, AdafactorIsThatOfTransformers) {
  for (const std::string name : {"adafactor", "adafactor_unscaled", "adafactor_momentum"}) {
    const auto settings = Goldens().settings(name);
    AdafactorOptions options;
    options.scale_parameter = settings.at("scale_parameter");
    if (settings.contains("beta1")) options.beta1 = settings.at("beta1").get<double>();
    expect_goldens(name, options);
  }
}

TEST(Optimizer, MuonIsThatOfPyTorchAndAdamwBesideIt) {
  for (const std::string name : {"muon", "muon_original"}) {
    const auto settings = Goldens().settings(name);
    MuonOptions options;
    options.momentum = settings.at("momentum");
    options.nesterov = settings.at("nesterov");
    options.matches_adamw = settings.at("adjust_lr_fn") == "match_rms_adamw";
    expect_goldens(name, options);
  }
}

TEST(Optimizer, OrthogonalizingKeepsDirectionsAndEvensOutTheirLengths) {
  at::manual_seed(5);
  for (const auto& sizes : {std::vector<int64_t>{24, 24}, {12, 30}, {30, 12}}) {
    const at::Tensor matrix = at::randn(sizes);
    const auto [u, s, v] = at::linalg_svd(matrix, false);
    const at::Tensor lengths = u.t().matmul(orthogonalize(matrix, 5)).matmul(v.t());
    EXPECT_TRUE(at::allclose(lengths, lengths.diagonal().diag(), 1e-3, 1e-3));
    const at::Tensor large = lengths.diagonal().masked_select(s > 0.05 * s.max());
    EXPECT_GT(large.min().item<float>(), 0.6F);
    EXPECT_LT(large.max().item<float>(), 1.3F);
  }
}

OwnedSlice one_slice(const std::vector<float>& master, const std::vector<float>& gradient,
                     double weight_decay) {
  const auto length = static_cast<int64_t>(master.size());
  return {
      {"w", {length}, {}, 0, {0, length}}, at::tensor(master), at::tensor(gradient), weight_decay};
}

// By hand, from the paper's algorithm 2, in numbers that float32 has.
TEST(Optimizer, LionStepsByTheSignOfABlend) {
  const OwnedSlice owned = one_slice({1, 1, 1}, {4, -8, 0}, 0.5);
  const auto optimizer = make_optimizer(LionOptions{0.5, 0.75}, {owned}, dist::Group());
  optimizer->step(0.25, 1);
  EXPECT_TRUE(at::equal(owned.master, at::tensor({0.625F, 1.125F, 0.875F})));
  EXPECT_TRUE(at::equal(optimizer->state()[1].values, at::tensor({1.F, -2.F, 0.F})));
  at::Tensor gradient = owned.gradient;
  gradient.copy_(at::tensor({-0.5F, 4.F, -1.F}));
  optimizer->step(0.25, 1);
  // Blends 0.25, 1 and -0.5.
  EXPECT_TRUE(at::equal(owned.master, at::tensor({0.296875F, 0.734375F, 1.015625F})));
}

TEST(Optimizer, WeightDecayIsDecoupledFromTheGradient) {
  for (const OptimizerOptions& options : std::initializer_list<OptimizerOptions>{
           AdamwOptions(), SgdOptions(), LionOptions(), AdafactorOptions(), MuonOptions()}) {
    const OwnedSlice owned = one_slice({8, -4}, {0, 0}, 0.5);
    const auto optimizer = make_optimizer(options, {owned}, dist::Group());
    const double rms = std::sqrt(40.0);
    const bool scales = std::holds_alternative<AdafactorOptions>(options);
    optimizer->step(0.125 / (scales ? rms : 1), 1);
    EXPECT_TRUE(at::allclose(owned.master, at::tensor({7.5F, -3.75F}), 1e-6)) << options.index();
  }
}

Wholes masters_after(const OptimizerOptions& options, const MeshPlace& mesh, int64_t steps) {
  Wholes wholes;
  for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
    OwnedParts parts(mesh, mesh.of(rank), 0.1);
    set_masters(parts, random_wholes(1));
    const auto optimizer = make_optimizer(options, parts.slices, dist::Group());
    for (int64_t step = 0; step < steps; ++step) {
      set_gradients(parts, random_wholes(static_cast<uint64_t>(2 + step)));
      optimizer->step(0.01, 0.7);
    }
    put_in_wholes(wholes, optimizer->state());
  }
  return wholes;
}

// No element knows of another, so ranks need not run at the same time.
TEST(Optimizer, ElementwiseOnesGiveTheSameBitsHoweverCut) {
  for (const OptimizerOptions& options :
       std::initializer_list<OptimizerOptions>{AdamwOptions(), SgdOptions(), LionOptions()}) {
    const Wholes expected = masters_after(options, {}, 3);
    ASSERT_FALSE(at::equal(expected.at("up/master"), random_wholes(1).at("up")));
    for (const MeshPlace& mesh : kMeshes) {
      const Wholes got = masters_after(options, mesh, 3);
      ASSERT_EQ(got.size(), expected.size());
      for (const auto& [name, whole] : expected) {
        EXPECT_TRUE(at::equal(got.at(name), whole))
            << name << " on " << mesh.replica << mesh.data << mesh.model;
      }
    }
  }
}

void expect_as_whole(const OptimizerOptions& options, const dist::World& world,
                     const MeshPlace& mesh) {
  const Wholes expected = masters_after(options, {}, 3);
  OwnedParts parts(mesh, mesh.of(world.rank()), 0.1);
  set_masters(parts, random_wholes(1));
  const auto optimizer = make_optimizer(options, parts.slices, world.group());
  for (uint64_t step = 0; step < 3; ++step) {
    set_gradients(parts, random_wholes(2 + step));
    optimizer->step(0.01, 0.7);
  }
  for (const StateTensor& each : optimizer->state()) {
    const at::Tensor& whole = expected.at(each.slice.name + "/" + each.state);
    const at::Tensor want = each.is_whole ? whole : part_of(whole, each.slice);
    EXPECT_TRUE(at::allclose(each.values, want, 1e-5, 1e-7)) << each.slice.name << each.state;
  }
}

void expect_as_whole_on_every_mesh(const OptimizerOptions& options) {
  for (const MeshPlace& mesh : kMeshes) {
    test::run_ranks(static_cast<int>(mesh.num_ranks()),
                    [&](const dist::World& world) { expect_as_whole(options, world, mesh); });
  }
}

TEST(Optimizer, AdafactorOfAnyCutIsThatOfTheWhole) {
  AdafactorOptions options;
  options.beta1 = 0.5;
  expect_as_whole_on_every_mesh(options);
}

TEST(Optimizer, MuonOfAnyCutIsThatOfTheWhole) { expect_as_whole_on_every_mesh(MuonOptions()); }

// Matrices of the blocks remember one value for each element, all else two.
TEST(Optimizer, MuonIsForHiddenMatricesAlone) {
  OwnedParts parts({}, {0, 0, 0}, 0.1);
  const auto optimizer = make_optimizer(MuonOptions(), parts.slices, dist::Group());
  std::map<std::string, std::string> states;
  for (const StateTensor& each : optimizer->state()) {
    if (each.state != "master") states[each.slice.name] += each.state + " ";
  }
  for (const std::string name : {"up", "down", "kv"}) EXPECT_EQ(states.at(name), "momentum ");
  for (const std::string name : {"embedding", "scale", "norm", "bias", "cube"}) {
    EXPECT_EQ(states.at(name), "exp_avg exp_avg_sq ") << name;
  }
}

// What lies end to end with the same decay is one run; a vector between matrices cuts it.
TEST(Optimizer, SlicesThatLieEndToEndAreUpdatedAsOne) {
  const OwnedParts parts({}, {0, 0, 0}, 0.1);
  EXPECT_EQ(parts.slices.size(), 8U);
  // embedding | scale || up | norm | down, kv | bias | cube
  EXPECT_EQ(make_adamw({}, parts.slices)->runs().size(), 7U);
  const OwnedParts alike({}, {0, 0, 0}, 0);
  EXPECT_EQ(make_adamw({}, alike.slices)->runs().size(), 2U);
}

// Longer than a thread's piece, so that several threads and pieces have a part.
TEST(Optimizer, ManyElementsAreUpdatedAsFewAre) {
  const int64_t length = 100'003;
  const at::Tensor start = at::randn({length});
  const OwnedSlice owned = {
      {"w", {length}, {}, 0, {0, length}}, start.clone(), at::randn({length}), 0.1};
  const auto optimizer = make_optimizer(AdamwOptions(), {owned}, dist::Group());
  for (int i = 0; i < 2; ++i) optimizer->step(0.01, 1);
  for (const int64_t at : {int64_t{0}, int64_t{32'767}, int64_t{32'768}, length - 1}) {
    const OwnedSlice one =
        one_slice({start[at].item<float>()}, {owned.gradient[at].item<float>()}, 0.1);
    const auto small = make_optimizer(AdamwOptions(), {one}, dist::Group());
    for (int i = 0; i < 2; ++i) small->step(0.01, 1);
    EXPECT_EQ(one.master.item<float>(), owned.master[at].item<float>()) << at;
  }
}

// The path of other devices, run here.
TEST(Optimizer, LibtorchsOperationsAgreeWithThePass) {
  const std::vector<OptimizerOptions> all = {AdamwOptions(), SgdOptions{0.9, true},
                                             SgdOptions{0.9, false}, LionOptions()};
  for (const OptimizerOptions& options : all) {
    const OwnedSlice pass = one_slice({1, -2, 3, 0.5}, {0.1, 0.2, -0.3, 0}, 0.1);
    OwnedSlice tensors = pass;
    tensors.master = pass.master.clone();
    const auto by_pass = make_optimizer(options, {pass}, dist::Group());
    const auto by_tensors = make_optimizer(options, {tensors}, dist::Group());
    for (int i = 0; i < 3; ++i) {
      by_pass->step(0.01, 0.5);
      dynamic_cast<ElementwiseOptimizer&>(*by_tensors).step_by_tensors(0.01, 0.5);
    }
    EXPECT_TRUE(at::allclose(pass.master, tensors.master, 1e-6)) << options.index();
    for (size_t i = 0; i < by_pass->state().size(); ++i) {
      EXPECT_TRUE(at::allclose(by_pass->state()[i].values, by_tensors->state()[i].values, 1e-6));
    }
  }
}

TEST(Optimizer, GradientsStayAsTheyAre) {
  const OwnedSlice owned = one_slice({1, 2}, {3, 4}, 0.1);
  make_optimizer(AdamwOptions(), {owned}, dist::Group())->step(0.1, 0.5);
  EXPECT_TRUE(at::equal(owned.gradient, at::tensor({3.F, 4.F})));
}

// Saved state and count go on as if nothing had been.
TEST(Optimizer, GoesOnFromItsState) {
  for (const OptimizerOptions& options : std::initializer_list<OptimizerOptions>{
           AdamwOptions(), SgdOptions(), LionOptions(), AdafactorOptions(), MuonOptions()}) {
    OwnedSlice first = one_slice({1, -2, 3, 4}, {0.5, 0.25, -1, 2}, 0.1);
    first.slice.sizes = {2, 2};
    const auto optimizer = make_optimizer(options, {first}, dist::Group());
    for (int i = 0; i < 3; ++i) optimizer->step(0.01, 1);
    OwnedSlice second = first;
    second.master = at::zeros({4});
    const auto resumed = make_optimizer(options, {second}, dist::Group());
    const auto from = optimizer->state();
    auto to = resumed->state();
    for (size_t i = 0; i < to.size(); ++i) to[i].values.copy_(from[i].values);
    resumed->set_num_steps(optimizer->num_steps());
    optimizer->step(0.01, 1);
    resumed->step(0.01, 1);
    EXPECT_TRUE(at::equal(first.master, second.master)) << options.index();
  }
}

TEST(Optimizer, RefusesWhatDoesNotFit) {
  const auto text = [](const OptimizerOptions& options, const OwnedSlice& owned) {
    return error_text([&] { make_optimizer(options, {owned}, dist::Group()); });
  };
  OwnedSlice owned = one_slice({1, 2}, {3, 4}, 0.1);
  EXPECT_EQ(text(AdamwOptions{1, 0.9, 1e-8}, owned),
            "ConfigError: train.adamw: beta1: expected 0 to 1 without 1, got 1");
  EXPECT_EQ(text(AdamwOptions{0.9, 0.9, 0}, owned),
            "ConfigError: train.adamw: epsilon: expected above 0, got 0");
  EXPECT_EQ(text(SgdOptions{-1, true}, owned),
            "ConfigError: train.sgd: momentum: expected 0 to 1 without 1, got -1");
  MuonOptions muon;
  muon.momentum = 1;
  EXPECT_EQ(text(muon, owned),
            "ConfigError: train.muon: momentum: expected 0 to 1 without 1, got 1");
  owned.gradient = at::zeros({3});
  EXPECT_EQ(text(AdamwOptions(), owned),
            "ShapeError: train.optimizer: gradient of w: expected 2 contiguous float32 values in "
            "one dim");
  owned = one_slice({1, 2}, {3, 4}, -0.1);
  EXPECT_EQ(text(AdamwOptions(), owned),
            "ConfigError: train.optimizer: weight_decay of w: expected at least 0, got -0.1");
}

TEST(Optimizer, RanksMustAgreeOnSizes) {
  test::run_ranks(2, [](const dist::World& world) {
    const std::vector<float> values(static_cast<size_t>(2 + world.rank()), 1);
    const OwnedSlice owned = one_slice(values, values, 0);
    EXPECT_EQ(error_text([&] { make_optimizer(AdafactorOptions(), {owned}, world.group()); }),
              "ShapeError: train.optimizer: parameter 'w': sizes [2] and [3] on different ranks");
  });
}

}  // namespace
}  // namespace weft::train
