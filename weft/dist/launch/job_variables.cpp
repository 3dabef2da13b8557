// Where the ranks of a job meet, by which key, and what tells them.
#include <algorithm>
#include <cstdlib>

#include "weft/dist/launch/job.h"
#include "weft/dist/launch/process.h"
#include "weft/dist/rendezvous/limits.h"
#include "weft/dist/rendezvous/rendezvous.h"
#include "weft/dist/store/client.h"
#include "weft/dist/store/job_key.h"
#include "weft/dist/store/server.h"
#include "weft/dist/store/sockets.h"

namespace weft::dist {

// On one host every job has a key of its own; several hosts must be told theirs.
std::string job_key_for(const LaunchOptions& options) {
  std::string key = job_key_from_env();
  return key.empty() && options.num_hosts == 1 ? new_job_key() : key;
}

// A program that knows torch's variables alone lets its rank 0 serve a store of torch's own there.
int torch_port_for(const LaunchOptions& options, int port) {
  constexpr int kMost = 65535;
  if (options.num_hosts > 1) return port < kMost ? port + 1 : port - 1;
  int free = 0;
  listen_on_loopback(free);
  return free;
}

void Job::open_store() {
  if (options_.host == 0) {
    store_ = std::make_unique<StoreServer>(std::move(socket_),
                                           StoreServerOptions{key_, host_name(), silence_limit()});
  }
  if (options_.num_hosts == 1) return;
  if (options_.host == 0) warn_without_key(key_, endpoint_text(options_.address, port_));
  const auto open = [this](std::chrono::milliseconds time) -> c10::intrusive_ptr<c10d::Store> {
    const auto silence = launcher_silence_limit();
    const bool never = silence == std::chrono::milliseconds::max();
    // A request that is lost with a wire that is mended is sent again by the system.
    const std::chrono::milliseconds patience =
        never ? std::chrono::hours(24) : std::max<std::chrono::milliseconds>(silence, kAnswerTime);
    return c10::make_intrusive<StoreClient>(StoreEndpoint{options_.address, port_, key_, patience},
                                            time);
  };
  link_ = std::make_unique<HostLink>(options_.num_hosts, options_.host, host_name(), open,
                                     start_timeout_from_env(), launcher_silence_limit());
}

std::vector<std::pair<std::string, std::string>> Job::variables_for(int index) const {
  const std::string rank_text = std::to_string(first_rank_ + index);
  const std::string local_text = std::to_string(index);
  const std::string size_text = std::to_string(all_ranks_);
  const std::string local_size_text = std::to_string(options_.num_ranks);
  std::vector<std::pair<std::string, std::string>> variables = {
      {"RANK", rank_text},
      {"LOCAL_RANK", local_text},
      {"WORLD_SIZE", size_text},
      {"LOCAL_WORLD_SIZE", local_size_text},
      {"MASTER_ADDR", options_.address},
      {"MASTER_PORT", std::to_string(torch_port_)},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"WEFT_RANK", rank_text},
      {"WEFT_LOCAL_RANK", local_text},
      {"WEFT_WORLD_SIZE", size_text},
      {"WEFT_LOCAL_WORLD_SIZE", local_size_text},
      {"WEFT_JOB_ID", job_id_},
      {"WEFT_STORE_ADDRESS", options_.address},
      {"WEFT_STORE_PORT", std::to_string(port_)},
      {"WEFT_STATUS_FD", std::to_string(page_.fd())},
      {kLifelineVariable, ""},
  };
  // "auto" leaves the choice to the program, whose own flags and files may say more.
  if (options_.backend != "auto" || std::getenv("WEFT_BACKEND") != nullptr) {
    variables.emplace_back("WEFT_BACKEND", options_.backend);
  }
  if (!key_.empty()) variables.emplace_back("WEFT_JOB_KEY", key_);
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) {
    variables.emplace_back("TORCH_CPP_LOG_LEVEL", "FATAL");
  }
  // More threads than processors would make every rank wait for every other.
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    const int threads = std::max(1, available_cpus() / options_.num_ranks);
    variables.emplace_back("OMP_NUM_THREADS", std::to_string(threads));
  }
  if (places_ != nullptr) {
    const auto& lent = places_->variables(index);
    variables.insert(variables.end(), lent.begin(), lent.end());
  }
  return variables;
}

}  // namespace weft::dist
