#include "weft/dist/world.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "weft/core/error.h"
#include "weft/dist/backends/backends.h"
#include "weft/dist/backends/mpi_group.h"
#include "weft/dist/check/checked_backend.h"
#include "weft/dist/group_monitor.h"
#include "weft/dist/rendezvous/handshake.h"
#include "weft/dist/rendezvous/launcher_watch.h"
#include "weft/dist/rendezvous/limits.h"
#include "weft/dist/rendezvous/peers.h"
#include "weft/dist/rendezvous/rendezvous.h"

namespace weft::dist {
namespace {

using core::check;
using core::ConfigError;

bool flag_from_env(const char* name, bool otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  const std::string_view value(text);
  check<ConfigError>(value == "0" || value == "1", "dist.World: ", name, ": expected 0 or 1, got '",
                     value, "'");
  return value == "1";
}

WorldOptions with_environment(WorldOptions options) {
  const char* backend = std::getenv("WEFT_BACKEND");
  if (backend != nullptr && !options.is_backend_final) options.backend = backend;
  options.timeout = limit_from_env("WEFT_TIMEOUT_S", options.timeout);
  options.start_timeout = start_timeout_from_env(options.start_timeout);
  options.check_collectives = flag_from_env("WEFT_CHECK_COLLECTIVES", options.check_collectives);
  return options;
}

// Nothing in a build without MPI.
BroadcastText mpi_broadcast() {
  const auto known = known_backends();
  const bool has_mpi = std::any_of(known.begin(), known.end(), [](const BackendName& each) {
    return each.id == BackendId::kMpi && each.is_built;
  });
  return has_mpi ? broadcast_by_mpi : BroadcastText();
}

// What the store and a backend throw, as CommError.
template <class Function>
auto in_our_words(const std::string& what, Function&& function) {
  try {
    return function();
  } catch (const core::Error&) {
    throw;
  } catch (const std::exception& error) {
    core::fail<core::CommError>("dist.World: ", what, ": expected the ranks to meet, got ",
                                first_line(error.what()), "; did one of them end?");
  }
}

}  // namespace

struct World::State {
  RankInfo info;
  WorldOptions options;
  const BackendRow* backend = nullptr;
  std::string backend_name = "none";
  Meeting meeting;
  std::shared_ptr<const Peers> peers;
  Group all;
  int groups_made = 0;

  std::shared_ptr<const Peers> meet();
  Group make_group(const BackendRow& row, const std::string& name, const std::vector<int>& ranks);
};

namespace {

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Held weakly: groups must end before what they rely on, so nothing static keeps them.
std::weak_ptr<void>& last_state() {
  static std::weak_ptr<void> state;
  return state;
}

}  // namespace

World::World(std::shared_ptr<State> state) : state_(std::move(state)) { last_state() = state_; }

std::shared_ptr<const World> World::current() {
  auto state = std::static_pointer_cast<State>(last_state().lock());
  if (state == nullptr) return nullptr;
  return std::shared_ptr<const World>(new World(std::move(state)));
}

World World::from_env(const WorldOptions& given) {
  quiet_c10d();
  auto state = std::make_shared<State>();
  state->info = rank_info_from_env();
  state->options = with_environment(given);
  // Also alone: a wrong name is wrong on any number of ranks.
  state->backend = &find_backend(state->options.backend, state->info);
  if (state->info.size == 1) return World(std::move(state));
  if (state->info.launcher == "openmpi" || state->info.launcher == "mpich") end_with_launcher();
  state->backend_name = state->backend->name;
  // The launcher sees it at once. Ranks that are to share a page have none yet.
  if (shared_status_page() != nullptr) start_heartbeat();
  state->meeting = in_our_words("store", [&] {
    return open_store(state->info, state->options.start_timeout, mpi_broadcast());
  });
  state->peers = in_our_words("start", [&] { return state->meet(); });
  start_heartbeat();
  state->all = state->make_group(*state->backend, "world", all_ranks(state->info.size));
  return World(std::move(state));
}

const RankInfo& World::info() const { return state_->info; }
const std::string& World::backend() const { return state_->backend_name; }
const Group& World::group() const { return state_->all; }

Group World::make_group(const std::string& name, const std::vector<int>& ranks) const {
  check<ConfigError>(!ranks.empty(), "dist.World.make_group: ", name, ": expected ranks, got none");
  const bool ascending = std::adjacent_find(ranks.begin(), ranks.end(),
                                            [](int a, int b) { return a >= b; }) == ranks.end();
  check<ConfigError>(ascending && ranks.front() >= 0 && ranks.back() < size(),
                     "dist.World.make_group: ", name, ": expected ascending ranks below ", size(),
                     ", got ", core::list_text(ranks));
  return state_->make_group(*state_->backend, name, ranks);
}

Group World::make_group_on(const std::string& backend, const std::string& name) const {
  return state_->make_group(find_backend(backend, info()), name, all_ranks(size()));
}

std::shared_ptr<const Peers> World::State::meet() {
  try {
    // Ranks that check and ranks that don't would take each other's words for data.
    const std::string agreed = backend_name + (options.check_collectives ? "(checked)" : "");
    return meet_ranks(meeting, info, {agreed, options.arguments}, options.start_timeout);
  } catch (const core::Error&) {
    remove_store(info);
    throw;
  }
}

// Groups are numbered in the order in which they are made, the same on all ranks, so that names
// of keys and shared memory agree without a word being exchanged.
Group World::State::make_group(const BackendRow& row, const std::string& name,
                               const std::vector<int>& ranks) {
  const int number = groups_made++;
  const auto own = std::find(ranks.begin(), ranks.end(), info.rank);
  if (own == ranks.end() || ranks.size() == 1) return Group();
  auto monitor = std::make_shared<GroupMonitor>(name, peers, ranks, options.timeout);
  const std::string key = core::join("weft/group/", number, "/", ranks.front(), "/");
  const GroupRequest request{info,
                             c10::make_intrusive<c10d::PrefixStore>(key, meeting.store),
                             monitor,
                             static_cast<int>(own - ranks.begin()),
                             static_cast<int>(ranks.size()),
                             core::join(number, "-", ranks.front()),
                             options.start_timeout,
                             meeting.endpoint ? meeting.endpoint->key : ""};
  GroupHandles handles =
      in_our_words(core::join("group ", name), [&] { return row.make(request); });
  const auto checker = options.check_collectives ? add_checks(request, handles) : nullptr;
  return Group(name, std::move(handles), monitor, checker);
}

}  // namespace weft::dist
