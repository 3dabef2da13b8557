#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/cli/options.h"
#include "weft/dist/world.h"
#include "weft/models/load/load.h"

namespace weft::cli {

/// Ranks that a verb needs.
struct RankRequest {
  /// 0: as many as a launcher has started.
  int64_t num_ranks = 0;
  /// What the number came from, for messages: "--tp".
  std::string source;
  /// Per rank; 0: cores / ranks of this host.
  int64_t threads = 0;
  /// What flags, variables and files have come to; nothing: what WEFT_BACKEND says, or "auto".
  std::optional<std::string> backend = {};
  /// What all ranks must have been asked for, as dist::WorldOptions::arguments.
  Args agreed = {};
};

/// Runs `body` on so many ranks: here, if this process is one of them or the only one; otherwise
/// `check` runs, and `command`, a verb and its arguments, is started on new ranks and its status
/// returned. Throws ConfigError if the number does not fit the ranks that a launcher has started.
int run_ranks(const RankRequest& request, const Args& command, const std::function<void()>& check,
              const std::function<int(const dist::World& world)>& body);

/// Runs the verb on `options.tp` ranks: if this process is one already, or tp is 1, `body` runs
/// here, with options of which model and tp are known; otherwise options.command is started on tp
/// new ranks and its status returned. What follows from headers and flags is checked before any
/// rank is started. Throws ConfigError if tp does not fit the ranks that a launcher has started.
int run_on_ranks(
    const ModelOptions& options,
    const std::function<int(const ModelOptions& options, const dist::World& world)>& body);

/// What a value of --expert-split means.
models::ExpertSplit expert_split_of(const std::string& name);

/// What a value of --cache-type means, and the value that means it.
at::ScalarType cache_dtype_of(const std::string& name);
std::string cache_type_of(at::ScalarType dtype);

/// What a value of --head-split means.
shard::HeadSplit head_split_of(const std::string& name);

/// A model that is loaded on all ranks, with its tokenizer.
struct Session {
  std::string path;
  std::shared_ptr<const io::TensorFile> file;
  models::LoadedModel loaded;
  double load_seconds = 0;

  const dist::Group& group() const { return loaded.model->group(); }
  bool is_root() const { return group().rank() == 0; }
};

/// Opens and loads the model over all ranks of the world, with the adapters of options.adapter
/// beside its weights. Collective.
Session open_session(const ModelOptions& options, const dist::World& world);

}  // namespace weft::cli
