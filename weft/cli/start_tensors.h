#pragma once

#include <string>

#include "weft/cli/options.h"

namespace weft::cli {

/// The program for verbs that need tensors, which lies beside `weft`.
inline constexpr char kTensorProgram[] = "weft-tensors";

/// Shows the verb's help if its arguments ask for it and returns 0; otherwise becomes the program
/// `weft-tensors` with the same arguments, in this process: its number, signals, descriptors and
/// exit code stay what they are for whoever started it. Throws ConfigError for help with arguments
/// that are refused, IoError if that program cannot be started.
int start_tensor_program(const std::string& verb, const Args& args);

}  // namespace weft::cli
