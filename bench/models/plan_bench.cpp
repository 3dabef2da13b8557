#include <chrono>
#include <cstdio>
#include <functional>

#include "weft/models/load/load.h"
#include "weft/models/load/new_model.h"
#include "weft/models/registry.h"

/// Times planning, from headers alone, for a model of 48 layers with 128 experts each (18,867
/// tensors, the sizes of Qwen3-30B-A3B) and for one of half as many layers, which must take about
/// half as long. With the model's own rules, and with the same rules as a user's shard_info.
namespace {

using namespace weft::models;

constexpr int64_t kRanks = 8;

ModelConfig config_of(int64_t num_layers) {
  ModelConfig config;
  config.family = "qwen3_moe";
  config.vocab_size = 151'936;
  config.width = 2048;
  config.num_layers = num_layers;
  config.num_heads = 32;
  config.num_kv_heads = 4;
  config.head_dim = 128;
  config.ffn_width = 6144;
  config.max_positions = 40'960;
  config.head_norms = HeadNorms::kEachHead;
  config.experts.num_experts = 128;
  config.experts.experts_per_token = 8;
  config.experts.ffn_width = 768;
  return config;
}

void time(const char* what, const std::function<size_t()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  const size_t count = run();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("%-40s %6zu tensors %7.2f s\n", what, count, seconds.count());
}

void time_model(int64_t num_layers) {
  const ModelConfig config = config_of(num_layers);
  const auto file = header_of(config);
  const WeightRules rules = find_family(config.family).rules(config, *file);
  const auto plan = [&](const weft::io::ShardInfo* info) {
    PlanOptions options;
    options.shard_info = info;
    return LoadPlan(*file, rules, kRanks, options).weights().size();
  };
  const weft::io::ShardInfo literal = shard_info(*file, rules);
  const weft::io::ShardInfo patterns = with_patterns(literal);
  time("the model's rules", [&] { return plan(nullptr); });
  time("a user's rules, one per tensor", [&] { return plan(&literal); });
  time("a user's rules, one for all layers", [&] { return plan(&patterns); });
}

}  // namespace

int main() {
  for (const int64_t num_layers : {24, 48}) time_model(num_layers);
  return 0;
}
