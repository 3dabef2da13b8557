#pragma once

namespace weft::dist {

/// How the ranks' values become one.
enum class ReduceOp { kSum, kAverage, kMin, kMax, kProduct };

}  // namespace weft::dist
