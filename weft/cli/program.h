#pragma once

#include <string>

#include "weft/cli/options.h"

namespace weft::cli {

/// Runs a verb that needs tensors and returns its exit code.
using TensorVerb = int (*)(const std::string& verb, const Args& args);

/// Runs `weft ARGS…` and returns the exit code: help, and verbs that need no tensors, here; the
/// others by `run_tensor_verb`. Every error becomes one line on stderr, once for ranks that agree
/// on it. Needs no libtorch itself.
int run_program(const Args& args, TensorVerb run_tensor_verb);

}  // namespace weft::cli
