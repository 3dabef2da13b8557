#pragma once

#include <cstdint>
#include <span>
#include <string>

// What is known of the backends without libtorch, for command lines and the launcher. How a group
// is made on each of them is in backends.h.

namespace weft::dist {

/// A backend, whatever it is called.
enum class BackendId : uint8_t { kNccl, kShm, kHierarchical, kMpi, kGloo };

/// What a backend asks of whoever starts the ranks.
struct LaunchNeeds {
  /// Each rank has a place in a job of mpirun, on one host.
  bool mpirun_places = false;
  /// Each rank is a program that has been started, not a copy of the launcher.
  bool own_program = false;
};

/// One backend that weft knows.
struct BackendName {
  BackendId id{};
  const char* name = "";
  /// Whether this build has it.
  bool is_built = true;
  /// Why a build may lack it and what to do, up to the list of the names that there are.
  const char* remedy = "; use one of: ";
  LaunchNeeds launch = {};
};

/// All backends that weft knows, in the order in which "auto" tries them.
std::span<const BackendName> known_backends();

/// The names that a user may give in any build, for a help text: "auto, nccl, shm or gloo".
std::string backend_choices();

/// The row of the backend `name`. Throws ConfigError, listing the names that this build has, if it
/// is none of them.
const BackendName& built_backend(const std::string& name);

/// What the backend `name` asks of the launcher; "auto" asks nothing. Throws ConfigError as
/// built_backend does.
LaunchNeeds launch_needs(const std::string& name);

}  // namespace weft::dist
