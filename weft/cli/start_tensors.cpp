#include "weft/cli/start_tensors.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "weft/cli/flags.h"
#include "weft/cli/verbs.h"
#include "weft/core/error.h"

namespace weft::cli {
namespace {

// What follows `--` is another program's.
bool may_ask_for_help(const Args& args) {
  const auto end = std::find(args.begin(), args.end(), "--");
  return std::any_of(args.begin(), end,
                     [](const std::string& arg) { return arg == "-h" || arg == "--help"; });
}

// A limit that libtorch meets where nothing can be thrown.
struct Least {
  int resource;
  rlim_t kibibytes;
  const char* name;
  const char* flag;
};

// Libtorch's constructors take some 440 MB of addresses before main, and end the process with
// SIGABRT, or the loader with a status of its own, where they are refused; its functions run with
// 128 KiB of stack and not with 64.
void check_limits() {
  constexpr Least kLeast[] = {{RLIMIT_AS, rlim_t{512} << 10, "address space", "-v"},
                              {RLIMIT_STACK, 512, "stack", "-s"}};
  for (const Least& least : kLeast) {
    struct rlimit limit = {};
    if (::getrlimit(least.resource, &limit) != 0) continue;
    core::check<core::IoError>(limit.rlim_cur >> 10 >= least.kibibytes, "limit of ", least.name,
                               ": expected at least ", least.kibibytes,
                               " KiB, which libtorch needs, got ", limit.rlim_cur >> 10,
                               " KiB; raise it (ulimit ", least.flag, ")");
  }
}

}  // namespace

int start_tensor_program(const std::string& verb, const Args& args) {
  // A word that looks like help may be a flag's value: then the verb runs.
  if (may_ask_for_help(args) && find_verb(verb).shows_help(args)) return 0;
  check_limits();
  const auto program = std::filesystem::path(program_path()).replace_filename(kTensorProgram);
  Args words = command_of(program.string(), command_of(verb, args));
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(program.c_str(), pointers.data());
  core::fail_errno(program.string(), "cannot start the program that weft's verbs with tensors need",
                   errno);
}

}  // namespace weft::cli
