#include "weft/dist/backends/names.h"

#include <array>

#include "weft/core/error.h"

namespace weft::dist {
namespace {

#ifdef WEFT_HAS_NCCL
constexpr bool kHasNccl = true;
#else
constexpr bool kHasNccl = false;
#endif

#ifdef WEFT_HAS_MPI
constexpr bool kHasMpi = true;
#else
constexpr bool kHasMpi = false;
#endif

constexpr auto kBackends = std::to_array<BackendName>({
    {.id = BackendId::kNccl,
     .name = "nccl",
     .is_built = kHasNccl,
     .remedy = ": it was built without CUDA and NCCL; configure with -DWEFT_NCCL=ON and build "
               "again, or use one of: ",
     .launch = {.own_program = true}},
    {.id = BackendId::kShm, .name = "shm"},
    {.id = BackendId::kHierarchical, .name = "hierarchical"},
    {.id = BackendId::kMpi,
     .name = "mpi",
     .is_built = kHasMpi,
     .remedy = ": MPI was not found when it was built; install libopenmpi-dev and build again, or "
               "use one of: ",
     .launch = {.mpirun_places = true}},
    {.id = BackendId::kGloo, .name = "gloo"},
});

std::string names_of_this_build() {
  std::string names;
  for (const BackendName& backend : kBackends) {
    if (backend.is_built) names += core::join(backend.name, ", ");
  }
  return names + "auto";
}

[[noreturn]] void refuse(const std::string& name, const char* remedy) {
  core::fail<core::ConfigError>("dist.World: backend: this build has no ", name, " backend", remedy,
                                names_of_this_build());
}

}  // namespace

std::span<const BackendName> known_backends() { return kBackends; }

std::string backend_choices() {
  std::string choices = "auto";
  for (const BackendName& backend : kBackends) {
    choices += core::join(&backend == &kBackends.back() ? " or " : ", ", backend.name);
  }
  return choices;
}

const BackendName& built_backend(const std::string& name) {
  for (const BackendName& backend : kBackends) {
    if (name != backend.name) continue;
    if (!backend.is_built) refuse(name, backend.remedy);
    return backend;
  }
  refuse(name, BackendName{}.remedy);
}

LaunchNeeds launch_needs(const std::string& name) {
  return name == "auto" ? LaunchNeeds{} : built_backend(name).launch;
}

}  // namespace weft::dist
