#pragma once

#include "weft/core/dtype.h"

namespace weft::io {

/// Types of tensors in files, and their table.
using core::Dtype;
using core::DtypeInfo;
using core::info;

}  // namespace weft::io
