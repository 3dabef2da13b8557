#include "weft/cli/verbs/bench_profile.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "weft/core/error.h"
#include "weft/core/files/read_speed.h"
#include "weft/core/json.h"
#include "weft/core/profile.h"
#include "weft/nn/layers/mixture_of_experts.h"
#include "weft/nn/linear/adapt.h"
#include "weft/nn/parallel/vocab_parallel.h"
#include "weft/train/gather_texts.h"

namespace weft::cli {
namespace {

at::Tensor sum_over(const dist::Group& group, at::ArrayRef<double> own) {
  at::Tensor sum = at::tensor(own, at::kDouble);
  group.all_reduce(sum);
  return sum;
}

// Operations per second of this process's threads.
double matmul_speed(at::ScalarType dtype, int64_t size) {
  constexpr int kTimes = 5;
  const at::Tensor a = at::ones({size, size}, dtype), b = at::ones_like(a);
  double best = 1e9;
  for (int i = 0; i < kTimes; ++i) {
    const auto start = std::chrono::steady_clock::now();
    at::matmul(a, b);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count());
  }
  return 2.0 * std::pow(static_cast<double>(size), 3) / best;
}

// In the faster of two types. A processor without instructions for bfloat16 takes seconds for a
// large product in it, so a small one tells first whether it is worth it.
double best_matmul_speed() {
  constexpr int64_t kSmall = 128, kLarge = 1024;
  const double in_float = matmul_speed(at::kFloat, kLarge);
  if (matmul_speed(at::kBFloat16, kSmall) < in_float / 4) return in_float;
  return std::max(in_float, matmul_speed(at::kBFloat16, kLarge));
}

// How many of a mixture's experts a token takes, as a share of them; 1 for all other linears.
class TokenShares {
 public:
  explicit TokenShares(const torch::nn::Module& model) {
    for (const auto& module : model.modules()) {
      const auto* mixture = dynamic_cast<const nn::MixtureOfExpertsImpl*>(module.get());
      if (mixture == nullptr) continue;
      const double share = static_cast<double>(mixture->options().top_k) /
                           static_cast<double>(mixture->num_experts());
      for (const nn::Expert& expert : mixture->experts()) {
        for (const auto& part : {expert->gate(), expert->up(), expert->down()}) {
          of_experts_[part->inner().get()] = share;
        }
      }
    }
  }
  double of(const nn::LinearLike* linear) const {
    const auto found = of_experts_.find(linear);
    return found == of_experts_.end() ? 1 : found->second;
  }

 private:
  std::map<const nn::LinearLike*, double> of_experts_;
};

}  // namespace

ModelWork work_of(models::CausalLM& model) {
  const TokenShares shares(model);
  std::map<const nn::LinearLike*, bool> is_multiplied;
  for (const nn::HeldLinear& each : nn::find_linears(model)) {
    const bool is_table = dynamic_cast<nn::VocabParallelEmbeddingImpl*>(each.holder) != nullptr;
    is_multiplied[each.holder->inner().get()] |= !is_table;
  }
  double bytes = 0, flops = 0;
  for (const auto& [linear, counts] : is_multiplied) {
    if (counts) bytes += shares.of(linear) * static_cast<double>(linear->weight_bytes());
  }
  for (const auto& block : model.blocks()) {
    for (const nn::HeldLinear& each : nn::find_linears(*block)) {
      const auto inner = each.holder->inner();
      flops += 2.0 * shares.of(inner.get()) *
               static_cast<double>(inner->in_features() * inner->out_features());
    }
  }
  const at::Tensor sums = sum_over(model.group(), {bytes, flops});
  return {sums[0].to(at::kLong).item<int64_t>(), sums[1].to(at::kLong).item<int64_t>()};
}

MachineLimits measure_limits(const dist::Group& group) {
  group.barrier();
  const double read = core::read_bytes_per_second(at::get_num_threads());
  group.barrier();
  const at::Tensor sums = sum_over(group, {read, best_matmul_speed()});
  return {sums[0].item<double>(), sums[1].item<double>()};
}

nlohmann::json roofline(const ModelWork& work, const MachineLimits& limits, double prefill_speed,
                        double decode_speed) {
  const double decode = limits.read_bytes_per_s / static_cast<double>(work.token_bytes);
  const double prefill = limits.matmul_flops_per_s / static_cast<double>(work.prompt_token_flops);
  return {{"token_bytes", work.token_bytes},
          {"prompt_token_flops", work.prompt_token_flops},
          {"read_bytes_per_s", limits.read_bytes_per_s},
          {"matmul_flops_per_s", limits.matmul_flops_per_s},
          {"decode_limit", decode},
          {"decode_share", decode_speed / decode},
          {"prefill_limit", prefill},
          {"prefill_share", prefill_speed / prefill}};
}

nlohmann::json profile_of_ranks(const dist::Group& group, int64_t num_tokens) {
  nlohmann::json own = nlohmann::json::array();
  for (const core::ProfiledPart& part : core::profiled_parts()) {
    const double ms = part.seconds / static_cast<double>(num_tokens) * 1e3;
    own.push_back({{"name", part.name}, {"runs", part.runs}, {"ms", ms}});
  }
  nlohmann::json all = own;
  for (nlohmann::json& part : all) part["ms"] = nlohmann::json::array();
  for (const std::string& text : train::gather_texts(group, core::dump_json(own))) {
    const nlohmann::json of_rank = core::parse_json(text, "weft bench");
    for (size_t i = 0; i < all.size(); ++i) all[i]["ms"].push_back(of_rank.at(i)["ms"]);
  }
  return all;
}

std::string profile_text(const std::string& title, const nlohmann::json& profile) {
  std::string text = title + ", ms per token of each rank\n";
  double total = 0;
  for (const nlohmann::json& part : profile) total += part["ms"][0].get<double>();
  for (const nlohmann::json& part : profile) {
    char line[96];
    std::snprintf(line, sizeof line, "  %-24s %5.1f %%", part["name"].get<std::string>().c_str(),
                  100 * part["ms"][0].get<double>() / total);
    text += line;
    for (const nlohmann::json& ms : part["ms"]) {
      std::snprintf(line, sizeof line, " %9.4f", ms.get<double>());
      text += line;
    }
    text += "\n";
  }
  return text;
}

std::string roofline_text(const nlohmann::json& roofline) {
  const auto number = [&](const char* key) { return roofline[key].get<double>(); };
  char lines[320];
  std::snprintf(lines, sizeof lines,
                "a token reads %.1f MB, the ranks read %.1f GB/s: at most %.0f tokens/s, %.0f %% "
                "of them reached\n"
                "a token of a prompt takes %.2f GFLOP, libtorch's matmul gives %.0f GFLOP/s: %.0f "
                "tokens/s, %.0f %% of them reached\n",
                number("token_bytes") / 1e6, number("read_bytes_per_s") / 1e9,
                number("decode_limit"), 100 * number("decode_share"),
                number("prompt_token_flops") / 1e9, number("matmul_flops_per_s") / 1e9,
                number("prefill_limit"), 100 * number("prefill_share"));
  return lines;
}

}  // namespace weft::cli
