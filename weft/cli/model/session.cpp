#include "weft/cli/model/session.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "weft/cli/cut/cut_rules.h"
#include "weft/cli/flags.h"
#include "weft/cli/model/adapter.h"
#include "weft/cli/program.h"
#include "weft/cli/progress.h"
#include "weft/cli/tensor_verbs.h"
#include "weft/core/error.h"
#include "weft/core/log.h"
#include "weft/core/memory/start_code.h"
#include "weft/core/thread.h"
#include "weft/cuda/device.h"
#include "weft/dist/backends/backends.h"
#include "weft/dist/launch/launch.h"
#include "weft/dist/launch/status_page.h"
#include "weft/io/check_finite.h"
#include "weft/models/config/sources.h"
#include "weft/models/load/load.h"

namespace weft::cli {
namespace {

using core::check;
using core::ConfigError;

constexpr char kDevice[] = "--device";

// Rules that replace the model's own, with the functions that they call.
struct GivenRules {
  std::optional<io::ShardInfo> info;
  io::FunctionTable functions;

  void apply(models::LoadOptions& load) const {
    load.shard_info = info ? &*info : nullptr;
    load.functions = functions;
  }
};

GivenRules read_rules(const ModelOptions& options, const io::TensorFile& file) {
  check_rule_flags(options.shard_info, options.functions);
  if (options.shard_info.empty()) return {};
  GivenRules rules{io::ShardInfo::read(options.shard_info), functions_for(file, options.functions)};
  check_functions(*rules.info, rules.functions);
  return rules;
}

// The plan that flags and headers give. What follows from them is refused before any rank is
// started.
models::LoadPlan checked_plan(const ModelOptions& options, const io::TensorFile& file) {
  const GivenRules rules = read_rules(options, file);
  models::LoadOptions load;
  rules.apply(load);
  load.expert_split = expert_split_of(options.expert_split);
  load.head_split = head_split_of(options.head_split);
  return models::make_plan(file, options.tp, load);
}

// The one beside the model for all, and those with a name.
struct CheckedAdapters {
  std::optional<GivenAdapter> all;
  std::vector<GivenAdapter> named;
};

CheckedAdapters checked_adapters(const ModelOptions& options, const io::TensorFile& file) {
  if (options.adapter.empty() && options.named_adapters.empty()) return {};
  const models::LoadPlan plan = checked_plan(options, file);
  CheckedAdapters given{open_adapter(options), open_named_adapters(options)};
  const bool changes_base = given.all && given.all->run && given.all->run->lora.quantize_bits != 0;
  check<ConfigError>(!changes_base || given.named.empty(),
                     "--adapter: ", core::quote(options.adapter),
                     ": was trained beside a quantized base, expected one beside which those with "
                     "a name were trained, too; leave one of them out");
  const auto check_one = [&](const GivenAdapter& adapter) {
    models::check_adapter(*adapter.adapters, plan, options.path);
  };
  if (given.all) check_one(*given.all);
  std::ranges::for_each(given.named, check_one);
  return given;
}

void put_adapters(const CheckedAdapters& given, const Session& session) {
  models::CausalLM& model = *session.loaded.model;
  if (given.all) put_adapter(model, *given.all, session.path);
  int64_t number = 0;
  for (const GivenAdapter& each : given.named) {
    models::attach_adapter(model, *each.adapters, ++number);
  }
}

void check_request(const ModelOptions& options) {
  if (options.device == "cuda") cuda::require_built(kDevice);
  const auto file = io::TensorFile::open(options.path);
  checked_plan(options, *file);
  checked_adapters(options, *file);
}

void check_backend(const RankRequest& request) {
  dist::RankInfo info;
  info.size = info.local_size = static_cast<int>(request.num_ranks);
  dist::find_backend(request.backend.value_or("auto"), info);
}

int relaunch(const RankRequest& request, const Args& command) {
  dist::LaunchOptions options;
  options.num_ranks = static_cast<int>(request.num_ranks);
  options.backend = request.backend.value_or("auto");
  options.prefix_output = false;
  options.command = {program_path()};
  options.command.insert(options.command.end(), command.begin(), command.end());
  options.body = [command] { return run_program(command, run_tensor_verb); };
  return dist::launch(options);
}

void set_threads(int64_t threads, const dist::RankInfo& info) {
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  check<ConfigError>(threads >= 0 && threads <= 1024, "--threads: ", threads,
                     ", expected 1 to 1024");
  const int64_t share = std::max<int64_t>(1, cores / info.local_size);
  const int64_t wanted = threads > 0 ? threads : share;
  // libtorch has a pool of `cores` threads and one of `wanted`, and OpenMP another: where one of
  // their threads can't be started, they wait for ever or end the process.
  core::check_can_start_threads("threads", static_cast<int>(cores + wanted));
  at::set_num_threads(static_cast<int>(wanted));
  if (info.local_size > cores && info.rank == 0) {
    core::log(core::LogLevel::kInfo, info.local_size, " ranks share ", cores, " cores");
  }
}

models::LoadedModel load(const ModelOptions& options, const io::TensorFile& file,
                         const dist::Group& group) {
  constexpr double kMegabyte = 1e6;
  const GivenRules rules = read_rules(options, file);
  ProgressBar bar("loading", "MB", kMegabyte, group.rank() == 0);
  models::LoadOptions load;
  rules.apply(load);
  load.expert_split = expert_split_of(options.expert_split);
  load.head_split = head_split_of(options.head_split);
  load.on_cuda = options.device == "cuda";
  if (options.halves_as_stored) load.dtype = at::ScalarType::Undefined;
  load.progress = [&](uint64_t read, uint64_t planned) { bar.show(read, planned); };
  if (options.activations != "float" && !load.on_cuda) {
    load.panel_activation_bits = options.activations == "int8" ? 8 : 16;
  }
  load.is_exact = options.is_exact;
  return models::load_model(file, group, load);
}

void check_exact(const ModelOptions& options) {
  check<ConfigError>(!options.is_exact || options.activations != "float",
                     "--exact: with --activations float, expected int16 or int8; add one of them");
  check<ConfigError>(!options.is_exact || options.device != "cuda",
                     "--exact: with --device cuda, expected cpu; leave one of them out");
  check<ConfigError>(
      !options.is_exact || (options.adapter.empty() && options.named_adapters.empty()),
      "--exact: with --adapter, expected a model without, whose products have one "
      "order; make one of both with weft fuse, or leave one of them out");
}

void check_cache_type(const ModelOptions& options) {
  const bool is_float = options.cache_type.empty() || options.cache_type == "f32";
  check<ConfigError>(is_float || options.device != "cuda", "--cache-type: ", options.cache_type,
                     " with --device cuda, expected f32; leave one of them out");
}

// Hosts may keep the model in different places, as its own bytes are compared, and lend it as many
// threads as they like.
Args agreed_arguments(const ModelOptions& options) {
  Args agreed;
  bool is_threads = false;
  for (const std::string& argument : options.command) {
    const bool is_value = std::exchange(is_threads, argument == "-t" || argument == "--threads");
    const bool is_own = is_value || is_threads || argument.starts_with("--threads=") ||
                        argument == options.path || argument == "--model=" + options.path;
    if (!is_own) agreed.push_back(argument);
  }
  return agreed;
}

}  // namespace

models::ExpertSplit expert_split_of(const std::string& name) {
  return name == "experts" ? models::ExpertSplit::kExperts : models::ExpertSplit::kFfn;
}

at::ScalarType cache_dtype_of(const std::string& name) {
  if (name == "q8_0") return at::kChar;
  return name == "f16" ? at::kHalf : at::kFloat;
}

std::string cache_type_of(at::ScalarType dtype) {
  if (dtype == at::kChar) return "q8_0";
  return dtype == at::kHalf ? "f16" : "f32";
}

shard::HeadSplit head_split_of(const std::string& name) {
  return name == "even" ? shard::HeadSplit::kEven : shard::HeadSplit::kKv;
}

int run_ranks(const RankRequest& request, const Args& command,
              const std::function<void()>& check_all,
              const std::function<int(const dist::World& world)>& body) {
  const dist::RankInfo info = dist::rank_info_from_env();
  RankRequest resolved = request;
  if (resolved.num_ranks == 0) resolved.num_ranks = info.size;
  if (info.launcher == "none" && resolved.num_ranks > 1) {
    check_backend(resolved);
    check_all();
    return relaunch(resolved, command);
  }
  check<ConfigError>(resolved.num_ranks == info.size, request.source, ": ", resolved.num_ranks,
                     ", but ", info.launcher, " started ", info.size, " ranks; leave ",
                     request.source, " out or make them equal");
  set_threads(request.threads, info);
  dist::WorldOptions world_options;
  world_options.backend = request.backend.value_or(world_options.backend);
  world_options.is_backend_final = request.backend.has_value();
  world_options.arguments = request.agreed;
  return body(dist::World::from_env(world_options));
}

int run_on_ranks(
    const ModelOptions& options,
    const std::function<int(const ModelOptions& options, const dist::World& world)>& body) {
  ModelOptions resolved = options;
  check_cache_type(options);
  check_exact(options);
  if (resolved.tp == 0) resolved.tp = dist::rank_info_from_env().size;
  check<ConfigError>(resolved.tp >= 1 && resolved.tp <= 1024, "--tp: ", resolved.tp,
                     ", expected 1 to 1024");
  resolved.path = base_path(options);
  return run_ranks(
      {resolved.tp, "--tp", options.threads, options.backend, agreed_arguments(options)},
      options.command, [&] { check_request(resolved); },
      [&](const dist::World& world) {
        try {
          return body(resolved, world);
        } catch (const core::FormatError&) {
          // Numbers that make no sense come of weights that make none, which says more.
          io::check_finite(*io::TensorFile::open(resolved.path));
          throw;
        }
      });
}

Session open_session(const ModelOptions& options, const dist::World& world) {
  const auto start = std::chrono::steady_clock::now();
  dist::set_activity("load");
  if (options.device == "cuda") {
    cuda::select_device(kDevice, dist::rank_info_from_env().local_rank);
  }
  core::release_start_code();
  Session session;
  session.path = options.path;
  session.file = io::TensorFile::open(session.path);
  const CheckedAdapters adapters = checked_adapters(options, *session.file);
  session.loaded = load(options, *session.file, world.group());
  if (!options.cache_type.empty()) {
    session.loaded.model->set_cache_dtype(cache_dtype_of(options.cache_type));
  }
  put_adapters(adapters, session);
  session.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  dist::set_activity("");
  return session;
}

}  // namespace weft::cli
