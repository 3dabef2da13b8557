#include "weft/cli/session.h"

#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <thread>

#include "weft/cli/program.h"
#include "weft/cli/progress.h"
#include "weft/cli/verbs/adapter.h"
#include "weft/core/error.h"
#include "weft/core/log.h"
#include "weft/core/start_code.h"
#include "weft/cuda/device.h"
#include "weft/dist/backends/backends.h"
#include "weft/dist/launch/launch.h"
#include "weft/dist/launch/status_page.h"
#include "weft/models/config/sources.h"
#include "weft/models/load/load.h"

namespace weft::cli {
namespace {

using core::check;
using core::ConfigError;

constexpr int64_t kDefaultContext = 4096;
constexpr char kDevice[] = "--device";
constexpr size_t kMaxStdinBytes = size_t{64} << 20;

volatile std::sig_atomic_t interrupted = 0;

void on_interrupt(int number) { interrupted = number; }

void watch(int number) {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  // No SA_RESTART: a prompt that waits for input ends at once.
  ::sigaction(number, &action, nullptr);
}

std::optional<io::ShardInfo> read_shard_info(const ModelFlags& flags) {
  if (flags.shard_info.empty()) return std::nullopt;
  return io::ShardInfo::read(flags.shard_info);
}

// The plan that flags and headers give. What follows from them is refused before any rank is
// started.
models::LoadPlan checked_plan(const ModelFlags& flags, const io::TensorFile& file) {
  const auto info_file = read_shard_info(flags);
  models::LoadOptions load;
  load.shard_info = info_file ? &*info_file : nullptr;
  load.expert_split = expert_split_of(flags.expert_split);
  load.head_split = head_split_of(flags.head_split);
  return models::make_plan(file, flags.tp, load);
}

std::optional<GivenAdapter> checked_adapter(const ModelFlags& flags, const models::LoadPlan& plan) {
  auto adapter = open_adapter(flags);
  if (adapter.has_value()) models::check_adapter(*adapter->adapters, plan, flags.model);
  return adapter;
}

void check_request(const ModelFlags& flags) {
  if (flags.device == "cuda") cuda::require_built(kDevice);
  const auto file = io::TensorFile::open(flags.model);
  checked_adapter(flags, checked_plan(flags, *file));
}

void check_backend(const RankRequest& request) {
  dist::RankInfo info;
  info.size = info.local_size = static_cast<int>(request.num_ranks);
  dist::find_backend(request.backend, info);
}

int relaunch(const RankRequest& request, const std::string& verb,
             const std::vector<std::string>& args) {
  dist::LaunchOptions options;
  options.num_ranks = static_cast<int>(request.num_ranks);
  options.backend = request.backend;
  options.prefix_output = false;
  options.command = {program_path(), verb};
  options.command.insert(options.command.end(), args.begin(), args.end());
  options.body = [words = std::vector(options.command.begin() + 1, options.command.end())] {
    return run_program(words);
  };
  return dist::launch(options);
}

void set_threads(int64_t threads, const dist::RankInfo& info) {
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  check<ConfigError>(threads >= 0 && threads <= 1024, "--threads: ", threads,
                     ", expected 1 to 1024");
  const int64_t share = std::max<int64_t>(1, cores / info.local_size);
  at::set_num_threads(static_cast<int>(threads > 0 ? threads : share));
  if (info.local_size > cores && info.rank == 0) {
    core::log(core::LogLevel::kInfo, info.local_size, " ranks share ", cores, " cores");
  }
}

models::LoadedModel load(const ModelFlags& flags, const io::TensorFile& file,
                         const dist::Group& group) {
  constexpr double kMegabyte = 1e6;
  const auto shard_info = read_shard_info(flags);
  ProgressBar bar("loading", "MB", kMegabyte, group.rank() == 0);
  models::LoadOptions options;
  options.shard_info = shard_info ? &*shard_info : nullptr;
  options.expert_split = expert_split_of(flags.expert_split);
  options.head_split = head_split_of(flags.head_split);
  options.on_cuda = flags.device == "cuda";
  options.progress = [&](uint64_t read, uint64_t planned) { bar.show(read, planned); };
  if (flags.activations != "float" && !options.on_cuda) {
    options.panel_activation_bits = flags.activations == "int8" ? 8 : 16;
  }
  return models::load_model(file, group, options);
}

void check_cache_type(const ModelFlags& flags) {
  check<ConfigError>(flags.cache_type != "f16" || flags.device != "cuda",
                     "--cache-type: f16 with --device cuda, expected f32; leave one of them out");
}

}  // namespace

models::ExpertSplit expert_split_of(const std::string& name) {
  return name == "experts" ? models::ExpertSplit::kExperts : models::ExpertSplit::kFfn;
}

shard::HeadSplit head_split_of(const std::string& name) {
  return name == "even" ? shard::HeadSplit::kEven : shard::HeadSplit::kKv;
}

int run_ranks(const RankRequest& request, const std::string& verb,
              const std::vector<std::string>& args, const std::function<void()>& check_all,
              const std::function<int(const dist::World& world)>& body) {
  const dist::RankInfo info = dist::rank_info_from_env();
  RankRequest resolved = request;
  if (resolved.num_ranks == 0) resolved.num_ranks = info.size;
  if (info.launcher == "none" && resolved.num_ranks > 1) {
    check_backend(resolved);
    check_all();
    return relaunch(resolved, verb, args);
  }
  check<ConfigError>(resolved.num_ranks == info.size, request.source, ": ", resolved.num_ranks,
                     ", but ", info.launcher, " started ", info.size, " ranks; leave ",
                     request.source, " out or make them equal");
  set_threads(request.threads, info);
  dist::WorldOptions world_options;
  world_options.backend = request.backend;
  return body(dist::World::from_env(world_options));
}

int run_on_ranks(const ModelFlags& flags, const std::string& verb,
                 const std::vector<std::string>& args,
                 int (*body)(const ModelFlags&, const dist::World&, const void*),
                 const void* options) {
  ModelFlags resolved = flags;
  check_cache_type(flags);
  if (resolved.tp == 0) resolved.tp = dist::rank_info_from_env().size;
  check<ConfigError>(resolved.tp >= 1 && resolved.tp <= 1024, "--tp: ", resolved.tp,
                     ", expected 1 to 1024");
  resolved.model = base_path(flags);
  return run_ranks(
      {resolved.tp, "--tp", flags.threads, flags.backend}, verb, args,
      [&] { check_request(resolved); },
      [&](const dist::World& world) { return body(resolved, world, options); });
}

Session open_session(const ModelFlags& flags, const dist::World& world) {
  const auto start = std::chrono::steady_clock::now();
  dist::set_activity("load");
  if (flags.device == "cuda") {
    cuda::select_device(kDevice, dist::rank_info_from_env().local_rank);
  }
  core::release_start_code();
  Session session;
  session.path = flags.model;
  session.file = io::TensorFile::open(session.path);
  std::optional<GivenAdapter> adapter;
  if (!flags.adapter.empty()) adapter = checked_adapter(flags, checked_plan(flags, *session.file));
  session.loaded = load(flags, *session.file, world.group());
  if (!flags.cache_type.empty()) {
    session.loaded.model->set_cache_dtype(flags.cache_type == "f16" ? at::kHalf : at::kFloat);
  }
  if (adapter.has_value()) put_adapter(*session.loaded.model, *adapter, session.path);
  session.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  dist::set_activity("");
  return session;
}

int64_t context_size(int64_t asked, const models::CausalLM& model) {
  return asked != 0 ? asked : std::min(kDefaultContext, model.config().max_positions);
}

std::vector<int64_t> share_tokens(const dist::Group& group, const std::vector<int64_t>& tokens) {
  at::Tensor count = at::tensor({static_cast<int64_t>(tokens.size())}, at::kLong);
  group.broadcast(count, 0);
  std::vector<int64_t> shared = tokens;
  shared.resize(static_cast<size_t>(count.item<int64_t>()));
  if (shared.empty()) return shared;
  at::Tensor ids = at::tensor(shared, at::kLong);
  group.broadcast(ids, 0);
  const auto* data = ids.const_data_ptr<int64_t>();
  return {data, data + ids.numel()};
}

std::vector<int64_t> to_tokens(const std::vector<text::TokenId>& ids) {
  return {ids.begin(), ids.end()};
}

void watch_interrupt() { watch(SIGINT); }

bool is_interrupted() { return interrupted != 0; }
void watch_termination() { watch(SIGTERM); }
int caught_signal() { return interrupted; }

bool TextOutput::write(const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EPIPE) return false;
    if (wrote < 0) core::fail_errno("stdout", "cannot write", errno);
    done += static_cast<size_t>(wrote);
  }
  return true;
}

std::string read_stdin() {
  std::string text;
  std::vector<char> buffer(1 << 16);
  while (true) {
    const ssize_t got = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR && !is_interrupted()) continue;
    if (got < 0) core::fail_errno("stdin", "cannot read", errno);
    if (got == 0) return text;
    text.append(buffer.data(), static_cast<size_t>(got));
    check<ConfigError>(text.size() <= kMaxStdinBytes, "stdin: more than ", kMaxStdinBytes,
                       " bytes; give a shorter prompt");
  }
}

}  // namespace weft::cli
