#include "weft/dist/rendezvous/slurm.h"

#include <limits>

namespace weft::dist {
namespace {

using core::ConfigError;

// Below the ports that Linux gives to connections by itself, 32768 and up.
constexpr int kFirstPort = 20'000;
constexpr int kNumPorts = 12'000;

[[noreturn]] void fail_list(const std::string& variable, std::string_view list) {
  core::fail<ConfigError>("dist.rank_info: ", variable,
                          ": expected hosts such as node[1-3],gpu7, got '", list, "'");
}

// The first entry of "03-12,17".
std::string_view first_of_ranges(std::string_view ranges) {
  return ranges.substr(0, ranges.find_first_of("-,"));
}

}  // namespace

std::string first_slurm_host(const std::string& variable, std::string_view list) {
  std::string host;
  size_t at = 0;
  while (at < list.size() && list[at] != ',') {
    if (list[at] != '[') {
      host += list[at++];
      continue;
    }
    const size_t close = list.find(']', at);
    if (close == std::string_view::npos) fail_list(variable, list);
    const std::string_view first = first_of_ranges(list.substr(at + 1, close - at - 1));
    if (first.empty()) fail_list(variable, list);
    host += first;
    at = close + 1;
  }
  if (host.empty() || host.find(']') != std::string::npos) fail_list(variable, list);
  return host;
}

bool is_slurm_task(const StrictEnvironment& env) {
  if (!env.has("SLURM_STEP_ID") || !env.has("SLURM_PROCID")) return false;
  const std::string step = *env.text("SLURM_STEP_ID");
  return step != "batch" && step != "interactive" && step != "extern" && step != "4294967291" &&
         step != "4294967290" && step != "4294967292";
}

std::optional<MeetingPlace> slurm_meeting_place(const StrictEnvironment& env) {
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    const std::string list = env.text_or_empty(name);
    if (list.empty()) continue;
    constexpr int kMost = std::numeric_limits<int>::max();
    const int64_t job = env.integer_or("SLURM_JOB_ID", 0, kMost, 0);
    const int64_t step = env.integer_or("SLURM_STEP_ID", 0, kMost, 0);
    const int chosen = kFirstPort + static_cast<int>((job * 31 + step) % kNumPorts);
    return MeetingPlace{first_slurm_host(name, list),
                        env.integer_or("MASTER_PORT", 1, 65535, chosen)};
  }
  return std::nullopt;
}

}  // namespace weft::dist
