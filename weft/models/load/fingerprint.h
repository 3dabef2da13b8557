#pragma once

#include <string>

#include "weft/io/tensor_file.h"

namespace weft::models {

/// Tells two models of one shape apart, e.g. two checkpoints of one run, without reading them: a
/// digest, in hexadecimal, of a GGUF file's keys or the config.json beside other files, and of some
/// bytes from the start and the middle of every tensor. Two files that differ elsewhere alone have
/// the same. Throws as TensorFile::read_at.
std::string fingerprint(const io::TensorFile& file);

}  // namespace weft::models
