#include "weft/dist/launch/shm_names.h"

#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "weft/core/error.h"
#include "weft/dist/launch/process.h"

namespace weft::dist {
namespace {

// Where Linux shows the names; see shm_overview(7).
constexpr const char* kFolder = "/dev/shm";

}  // namespace

std::string shm_name(const std::string& job_id, const std::string& group_id) {
  return core::join("/weft-", geteuid(), "-", short_hash(job_id), "-", group_id);
}

void unlink_shm(const std::string& name) { shm_unlink(name.c_str()); }

void unlink_shm_of_job(const std::string& job_id) {
  const std::string prefix = shm_name(job_id, "").substr(1);
  std::error_code error;
  std::filesystem::directory_iterator entry(kFolder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(prefix)) unlink_shm("/" + name);
  }
}

}  // namespace weft::dist
