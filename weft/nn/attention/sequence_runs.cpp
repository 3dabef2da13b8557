#include "weft/nn/attention/sequence_runs.h"

#include <unordered_set>

namespace weft::nn {

std::optional<std::vector<SequenceRun>> sequence_runs(const at::Tensor& documents_BT, int64_t batch,
                                                      int64_t tokens) {
  std::vector<SequenceRun> runs;
  if (!documents_BT.defined()) {
    for (int64_t row = 0; row < batch; ++row) runs.push_back({row, 0, tokens});
    return runs;
  }
  const at::Tensor contiguous = documents_BT.contiguous();
  const auto* numbers = contiguous.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < batch; ++row, numbers += tokens) {
    std::unordered_set<int64_t> seen;
    for (int64_t start = 0; start < tokens;) {
      if (!seen.insert(numbers[start]).second) return std::nullopt;
      int64_t end = start + 1;
      while (end < tokens && numbers[end] == numbers[start]) ++end;
      runs.push_back({row, start, end - start});
      start = end;
    }
  }
  return runs;
}

}  // namespace weft::nn
