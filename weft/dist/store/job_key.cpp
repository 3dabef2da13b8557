#include "weft/dist/store/job_key.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/core/log.h"
#include "weft/core/sha256.h"

namespace weft::dist {
namespace {

using core::check;
using core::ConfigError;

constexpr size_t kLeastCharacters = 16;
constexpr size_t kMostCharacters = 4096;
constexpr size_t kNewKeyBytes = 32;

// Byte by byte: what follows the line in a pipe belongs to others.
std::string first_line_of(const char* path) {
  // It may be a socket, which cannot be opened by name.
  const bool is_stdin = std::string_view(path) == "/dev/stdin";
  const core::FileDescriptor file(is_stdin ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC));
  check<core::IoError>(file.is_open(), "dist.job_key: WEFT_JOB_KEY_FILE: expected a file that can ",
                       "be read, got '", path, "'");
  std::string line;
  char byte = 0;
  while (line.size() < kMostCharacters && read(file.get(), &byte, 1) == 1 && byte != '\n') {
    line += byte;
  }
  return line;
}

}  // namespace

std::string job_key_from_env() {
  const char* text = std::getenv("WEFT_JOB_KEY");
  const char* path = std::getenv("WEFT_JOB_KEY_FILE");
  if (text == nullptr && path == nullptr) return {};
  const std::string key = text != nullptr ? text : first_line_of(path);
  check<ConfigError>(key.size() >= kLeastCharacters,
                     "dist.job_key: ", text != nullptr ? "WEFT_JOB_KEY" : path,
                     ": expected a key of at least ", kLeastCharacters, " characters, got ",
                     key.size(), "; draw one with `openssl rand -hex 32`");
  return key;
}

std::string new_job_key() { return core::hex_text(core::random_bytes(kNewKeyBytes)); }

void warn_without_key(const std::string& key, const std::string& where) {
  if (!key.empty()) return;
  core::log(core::LogLevel::kWarn, "dist.job_key: several hosts without a key: whoever reaches ",
            where, " can join or end this job; set WEFT_JOB_KEY or WEFT_JOB_KEY_FILE on all hosts");
}

}  // namespace weft::dist
