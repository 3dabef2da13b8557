#include "weft/cli/program.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <system_error>

#include "weft/cli/streams.h"
#include "weft/cli/verbs.h"
#include "weft/cli/version.h"
#include "weft/core/error.h"
#include "weft/core/terminal/printable.h"
#include "weft/dist/launch/status_page.h"

namespace weft::cli {
namespace {

std::string help_text() {
  std::string text =
      "weft splits transformer models over processes.\n\nUsage: weft VERB [ARGUMENT…]\n\n";
  for (const Verb& verb : verbs()) {
    text += "  " + verb.name + std::string(12 - verb.name.size(), ' ') + verb.summary + "\n";
  }
  return text +
         "\n`weft help VERB` shows a verb's flags. A flag beats its WEFT_* environment "
         "variable,\n"
         "which beats --config FILE.toml.\n";
}

int dispatch(const Args& args, TensorVerb run_tensor_verb) {
  const std::string first = args.empty() ? "help" : args[0];
  if (first == "help" && args.size() > 1) {
    static_cast<void>(find_verb(args[1]).shows_help({"--help"}));
    return 0;
  }
  if (first == "help" || first == "--help" || first == "-h") {
    TextOutput().write(help_text());
    return 0;
  }
  if (first == "--version" || first == "version") {
    TextOutput().write(version_text());
    return 0;
  }
  const Verb& verb = find_verb(first);
  const Args rest(args.begin() + 1, args.end());
  return verb.run != nullptr ? verb.run(rest) : run_tensor_verb(first, rest);
}

int report(const char* type, int exit_code, const std::string& message) {
  const std::string line =
      core::join("weft: ", type, ": ", core::shortened(core::printable(message)));
  if (dist::should_report(line)) std::fprintf(stderr, "%s\n", line.c_str());
  return exit_code;
}

}  // namespace

int run_program(const Args& args, TensorVerb run_tensor_verb) {
  // A reader that went away is seen when a write fails; c10d's own stack traces say nothing to
  // users.
  std::signal(SIGPIPE, SIG_IGN);
  // A file that may not grow is an error of the write, not the end of the program.
  std::signal(SIGXFSZ, SIG_IGN);
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", 0);
  try {
    return dispatch(args, run_tensor_verb);
  } catch (const core::Error& error) {
    return report(error.type(), error.exit_code(), error.what());
  } catch (const std::bad_alloc&) {
    return report("IoError", 5,
                  "out of memory; use a smaller model, a shorter context or more ranks");
  } catch (const std::system_error& error) {
    return report("IoError", 5,
                  core::join("the system refused: ", error.what(),
                             "; look at the limits of files, processes and memory (ulimit -a)"));
  } catch (const std::exception& error) {
    // libtorch's exceptions have a stack trace below their first line.
    const std::string text = error.what();
    return report("InternalError", 1, text.substr(0, text.find('\n')));
  }
}

}  // namespace weft::cli
