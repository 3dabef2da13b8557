/// Trains a module of three vectors on the mesh that the environment's ranks make, with the units
/// that each microbatch uses given as text, and tells what came of it: gradients, bytes over the
/// replica axis, bytes of state. tools/peers/compare_fsdp2.py sets it beside PyTorch's FSDP2.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "weft/core/error.h"
#include "weft/dist/mesh.h"
#include "weft/dist/world.h"
#include "weft/train/optimizer/optimizer.h"
#include "weft/train/psdp/sharded_module.h"

namespace {

namespace train = weft::train;
using nlohmann::json;

struct Options {
  // Steps divided by '|', their microbatches by ',', each the units that it uses: "ab", "-" for
  // none, or "a/b" where data rank 0 uses a and data rank 1 uses b.
  std::string ways = "ab";
  std::string dtype = "fp32";
  int64_t replicas = 1, width = 8;
  bool same_on_all_ranks = false;
};

std::vector<std::string> divide(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, by);) parts.push_back(part);
  return parts;
}

class VectorImpl : public torch::nn::Module {
 public:
  explicit VectorImpl(int64_t width) : weight_D(register_parameter("weight", at::ones({width}))) {}
  at::Tensor forward(double factor) { return (weight_D * factor).sum(); }
  at::Tensor weight_D;
};
TORCH_MODULE(Vector);

class VectorsImpl : public torch::nn::Module {
 public:
  explicit VectorsImpl(int64_t width)
      : a(register_module("a", Vector(width))),
        b(register_module("b", Vector(width))),
        around_D(register_parameter("around", at::ones({width}))) {}
  at::Tensor forward(double factor, const std::string& way) {
    at::Tensor loss = (around_D * factor).sum();
    if (way.find('a') != std::string::npos) loss = loss + a->forward(factor);
    if (way.find('b') != std::string::npos) loss = loss + b->forward(factor);
    return loss;
  }
  Vector a, b;
  at::Tensor around_D;
};
TORCH_MODULE(Vectors);

/// One training run of the module and what is counted in it.
class Run {
 public:
  Run(const Options& options, const weft::dist::World& world)
      : world_(world),
        mesh_(world, {{"replica", options.replicas}, {"data", world.size() / options.replicas}}),
        factor_(options.same_on_all_ranks ? 1.0 : static_cast<double>(world.rank() + 1)),
        model_(options.width) {
    train::ShardOptions shard;
    shard.dtype = options.dtype == "bf16" ? at::kBFloat16 : at::kFloat;
    sharded_ = train::shard_module(*model_, mesh_, {model_->a.ptr(), model_->b.ptr()}, shard);
    std::vector<train::OwnedSlice> slices;
    for (const train::OwnedPart& part : sharded_->owned_parts()) {
      slices.push_back({part.slice, part.master, part.gradient, 0.0});
    }
    optimizer_ = train::make_optimizer(train::AdamwOptions{}, slices, sharded_->groups().all);
  }

  /// Returns each parameter's gradient, the mean over ranks, as its first owned element.
  json step(const std::string& ways) {
    for (const std::string& microbatch : divide(ways, ',')) {
      const auto by_rank = divide(microbatch, '/');
      const auto rank = static_cast<size_t>(sharded_->groups().data.rank());
      const at::Tensor loss = model_->forward(factor_, by_rank[rank % by_rank.size()]);
      sharded_->backward(loss / static_cast<double>(world_.size()));
    }
    sharded_->finish_gradients();
    json gradients;
    for (const train::OwnedPart& part : sharded_->owned_parts()) {
      if (part.gradient.numel() == 0) continue;
      gradients[part.slice.name] = part.gradient[0].item<double>();
    }
    optimizer_->step(0.0, 1.0);
    sharded_->publish();
    return gradients;
  }

  /// What a rank sends to reduce and gather over replicas by rings.
  double replica_bytes() const {
    const weft::dist::Group& group = sharded_->groups().replica;
    const weft::dist::Traffic traffic = group.traffic();
    const double share = static_cast<double>(group.size() - 1) / static_cast<double>(group.size());
    return share * static_cast<double>(2 * traffic.all_reduce.bytes + traffic.all_gather.bytes +
                                       traffic.reduce_scatter.bytes);
  }

  uint64_t state_bytes() const {
    uint64_t bytes = 0;
    for (const auto& unit : sharded_->units()) {
      bytes += unit->parameter_bytes() + unit->gradient_bytes() + unit->master_bytes();
    }
    if (sharded_->groups().replica.size() > 1) {
      for (const train::OwnedPart& part : sharded_->owned_parts()) bytes += part.gradient.nbytes();
    }
    for (const train::StateTensor& each : optimizer_->state()) {
      if (each.state != "master") bytes += each.values.nbytes();
    }
    return bytes;
  }

 private:
  const weft::dist::World& world_;
  weft::dist::Mesh mesh_;
  double factor_;
  Vectors model_;
  std::unique_ptr<train::ShardedModule> sharded_;
  std::unique_ptr<train::Optimizer> optimizer_;
};

void print_run(const Options& options, const weft::dist::World& world) {
  Run run(options, world);
  json result = {{"gradients", json::array()}};
  for (const std::string& step : divide(options.ways, '|')) {
    result["gradients"].push_back(run.step(step));
  }
  result["replica_bytes"] = run.replica_bytes();
  result["state_bytes"] = run.state_bytes();
  if (world.rank() == 0) std::puts(result.dump().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains three vectors, of which each microbatch uses some.");
  app.add_option("--ways", options.ways);
  app.add_option("--dtype", options.dtype)->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--replicas", options.replicas);
  app.add_option("--width", options.width);
  app.add_flag("--same", options.same_on_all_ranks);
  CLI11_PARSE(app, argc, argv);
  try {
    print_run(options, weft::dist::World::from_env());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_psdp_ways: %s\n", error.what());
    return 1;
  }
  return 0;
}
