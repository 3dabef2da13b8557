// How the ranks of a group come to share communicators of MPI.
#include "weft/dist/backends/mpi_group.h"

#include <dlfcn.h>

#include <charconv>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "weft/core/error.h"
#include "weft/dist/backends/block_backend.h"
#include "weft/dist/mpi/library.h"
#include "weft/version.h"

namespace weft::dist {
namespace {

using core::check;
using core::ConfigError;

constexpr const char* kWhere = "dist.World: backend mpi: ";
constexpr const char* kLibrary = "libweft_mpi.so";

// Looked for where the program looks for its libraries. MPI's own parts, which it loads by itself,
// want its names for all; it stays until the process ends, and ends with it.
void* open_library() {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  check<ConfigError>(library != nullptr, kWhere, "expected ", kLibrary,
                     " and MPI, got: ", library == nullptr ? dlerror() : "",
                     "; install both, or use another backend");
  return library;
}

template <class Function>
Function* find_function(void* library, const char* name) {
  void* const found = dlsym(library, name);
  check<ConfigError>(found != nullptr, kWhere, kLibrary, ": expected ", name,
                     ", got a library without it; install weft anew");
  return reinterpret_cast<Function*>(found);
}

void* load_library() {
  static void* const library = open_library();
  const std::string_view version = find_function<MpiLibraryVersion>(library, "weft_mpi_version")();
  check<ConfigError>(version == WEFT_VERSION, kWhere, kLibrary, ": expected weft ", WEFT_VERSION,
                     ", got ", version, "; install both from one build");
  return library;
}

// MPI waits for all ranks of a group with its eyes shut, so they first meet in the store.
void meet(const GroupRequest& request) {
  const auto key = [](int rank) { return "mpi/" + std::to_string(rank); };
  request.store->set(key(request.rank), std::string("here"));
  for (int rank = 0; rank < request.size; ++rank) {
    try {
      request.store->wait({key(rank)}, request.start_timeout);
    } catch (const std::exception&) {
      core::fail<core::CommError>("dist.World: group ", request.monitor->name(), ": ",
                                  request.monitor->peer_name(rank),
                                  " did not make it in time (WEFT_START_TIMEOUT_S)");
    }
  }
}

// Two tags for each group, within the least range that MPI promises. The same tag again is no harm:
// a rank makes one group after the other.
int tag_of(const std::string& id) {
  int number = 0;
  std::from_chars(id.data(), id.data() + id.size(), number);
  return 2 * (number % 16'000);
}

}  // namespace

std::string broadcast_by_mpi(const RankInfo& info, const std::string& text,
                             std::chrono::milliseconds timeout) {
  constexpr size_t kMostBytes = 4096;
  check<core::InternalError>(text.size() < kMostBytes, kWhere, "the text is too long");
  std::string bytes = text;
  bytes.resize(kMostBytes, '\0');
  auto* const broadcast = find_function<MpiBroadcast>(load_library(), "weft_mpi_broadcast");
  broadcast(info, bytes.data(), static_cast<int>(bytes.size()), timeout);
  return bytes.substr(0, bytes.find('\0'));
}

GroupHandles make_mpi_group(const GroupRequest& request) {
  static auto* const make_transport =
      find_function<MakeMpiTransport>(load_library(), "weft_mpi_transport");
  meet(request);
  std::unique_ptr<BlockTransport> transport(
      make_transport(request.info, request.monitor, tag_of(request.id)));
  return make_block_group(request, "mpi", std::move(transport));
}

}  // namespace weft::dist
