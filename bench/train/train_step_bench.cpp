/// Times training steps of a small Llama on the mesh that the environment's ranks make, with the
/// weights, tokens and optimizer of compare.py's PyTorch peers: what it prints can be set against
/// theirs. Rank 0 prints one JSON object: tokens per second of the median step, and the losses.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "weft/dist/mesh.h"
#include "weft/dist/world.h"
#include "weft/models/load/new_model.h"
#include "weft/nn/layers/cpu_speed.h"
#include "weft/nn/parallel/parameter_info.h"
#include "weft/train/optimizer/optimizer.h"
#include "weft/train/psdp/sharded_module.h"

namespace {

namespace models = weft::models;
namespace train = weft::train;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string dtype = "fp32";
  int64_t tp = 1, batch = 4, tokens = 512, steps = 8, warmup = 3, threads = 1;
  int64_t width = 512, layers = 8, heads = 8, kv_heads = 4, ffn = 1408, vocab = 8192;
  uint64_t seed = 1234;
};

uint64_t splitmix64(uint64_t x) {
  uint64_t z = x + 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

/// int64 [rows, T + 1]: each token follows from the one before, with two bits of noise.
at::Tensor make_tokens(const Options& options, int64_t step, int64_t first_row) {
  at::Tensor ids = at::empty({options.batch, options.tokens + 1}, at::kLong);
  auto* out = ids.mutable_data_ptr<int64_t>();
  const auto vocab = static_cast<uint64_t>(options.vocab);
  for (int64_t row = 0; row < options.batch; ++row) {
    const uint64_t key =
        (static_cast<uint64_t>(step) << 40) + (static_cast<uint64_t>(first_row + row) << 20);
    uint64_t id = splitmix64(key) % vocab;
    *out++ = static_cast<int64_t>(id);
    for (int64_t t = 1; t <= options.tokens; ++t) {
      id = (5 * id + 7 + splitmix64(key + static_cast<uint64_t>(t)) % 4) % vocab;
      *out++ = static_cast<int64_t>(id);
    }
  }
  return ids;
}

models::ModelConfig config_of(const Options& options) {
  models::ModelConfig config;
  config.family = "llama";
  config.vocab_size = options.vocab;
  config.width = options.width;
  config.num_layers = options.layers;
  config.num_heads = options.heads;
  config.num_kv_heads = options.kv_heads;
  config.ffn_width = options.ffn;
  config.max_positions = options.tokens;
  return config;
}

/// As the peers draw them: wholes one after the other from libtorch's default generator.
void draw_peer_weights(const torch::nn::Module& model, int64_t rank, uint64_t seed) {
  const at::NoGradGuard no_grad;
  at::manual_seed(seed);
  for (const weft::nn::ParameterInfo& info : weft::nn::describe_parameters(model)) {
    if (info.sizes.size() == 1) continue;
    at::Tensor part = at::empty(info.sizes).normal_(0, 0.02);
    if (info.cut) {
      std::vector<at::Tensor> ranges;
      for (const auto& range : info.cut->of(rank)) {
        ranges.push_back(part.narrow(info.cut->dim, range.start, range.length));
      }
      part = at::cat(ranges, info.cut->dim);
    }
    at::Tensor(info.tensor).copy_(part);
  }
}

std::unique_ptr<train::Optimizer> make_adamw(const train::ShardedModule& sharded) {
  std::vector<train::OwnedSlice> slices;
  for (const train::OwnedPart& part : sharded.owned_parts()) {
    slices.push_back({part.slice, part.master, part.gradient, 0.1});
  }
  return train::make_optimizer(train::AdamwOptions{}, std::move(slices), sharded.groups().all);
}

/// Everything that a step needs, and the step.
class Trainer {
 public:
  Trainer(const Options& options, const weft::dist::World& world)
      : options_(options),
        mesh_(world, {{"data", world.size() / options.tp}, {"model", options.tp}}),
        group_(mesh_.group({"model"})),
        model_(models::make_model(config_of(options), group_)) {
    draw_peer_weights(*model_, group_.rank(), options.seed);
    train::ShardOptions shard;
    shard.dtype = options.dtype == "bf16" ? at::kBFloat16 : at::kFloat;
    sharded_ = train::shard_module(*model_, mesh_, model_->blocks(), shard);
    optimizer_ = make_adamw(*sharded_);
  }

  int64_t num_data() const { return mesh_.group({"data"}).size(); }

  /// Returns the step's loss, over all ranks.
  double step(int64_t number) {
    const int64_t rows = mesh_.group({"data"}).rank() * options_.batch;
    const at::Tensor ids = make_tokens(options_, number, rows);
    const at::Tensor inputs = ids.narrow(1, 0, options_.tokens).contiguous();
    const at::Tensor targets = ids.narrow(1, 1, options_.tokens).contiguous();
    const auto count = static_cast<double>(targets.numel() * num_data());
    const at::Tensor loss = model_->loss_sum(model_->forward({inputs}), targets) / count;
    sharded_->backward(loss);
    sharded_->finish_gradients();
    const double norm = sharded_->gradient_norm();
    optimizer_->step(3e-4, std::min(1.0, 1.0 / (norm + 1e-6)));
    sharded_->publish();
    at::Tensor sum = loss.detach().clone();
    mesh_.group({"data"}).all_reduce(sum);
    return sum.item<double>();
  }

 private:
  Options options_;
  weft::dist::Mesh mesh_;
  weft::dist::Group group_;
  std::shared_ptr<models::CausalLM> model_;
  std::unique_ptr<train::ShardedModule> sharded_;
  std::unique_ptr<train::Optimizer> optimizer_;
};

void measure(const Options& options, const weft::dist::World& world) {
  Trainer trainer(options, world);
  std::vector<double> seconds, losses;
  for (int64_t step = 0; step < options.warmup + options.steps; ++step) {
    world.group().barrier();
    const auto begin = Clock::now();
    losses.push_back(trainer.step(step));
    if (step >= options.warmup) {
      seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
  }
  if (world.rank() != 0) return;
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const int64_t tokens = options.batch * options.tokens * trainer.num_data();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const nlohmann::json result = {{"dtype", options.dtype},
                                 {"tp", options.tp},
                                 {"ranks", world.size()},
                                 {"tok_s", static_cast<double>(tokens) / median},
                                 {"step_ms", median * 1e3},
                                 {"min_ms", seconds.front() * 1e3},
                                 {"max_ms", seconds.back() * 1e3},
                                 {"rss_MB", usage.ru_maxrss / 1024},
                                 {"losses", losses}};
  std::puts(result.dump().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Times training steps.");
  app.add_option("--dtype", options.dtype)->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--tp", options.tp);
  app.add_option("--batch", options.batch);
  app.add_option("--seq", options.tokens);
  app.add_option("--steps", options.steps);
  app.add_option("--warmup", options.warmup);
  app.add_option("--threads", options.threads);
  app.add_option("--layers", options.layers);
  CLI11_PARSE(app, argc, argv);
  try {
    weft::nn::use_fast_cpu();
    at::set_num_threads(static_cast<int>(options.threads));
    measure(options, weft::dist::World::from_env());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_train_step: %s\n", error.what());
    return 1;
  }
  return 0;
}
