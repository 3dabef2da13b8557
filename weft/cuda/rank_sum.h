#pragma once

#include <array>
#include <cstdint>
#include <memory>

namespace weft::cuda {

/// Sums over the GPUs of several processes by NCCL, which is looked for when the program runs:
/// libnccl.so.2, where the system finds libraries. Every rank has a GPU of its own.
class RankSum {
 public:
  /// What ranks meet by.
  using Id = std::array<int64_t, 16>;

  /// Whether this build knows NCCL and the library is there.
  static bool is_available();
  /// A new one, for one rank to make and to tell the others. Throws InternalError with NCCL's text.
  static Id make_id();

  /// Meets the other `size` - 1 ranks, which call it with the same id. Throws InternalError with
  /// NCCL's text.
  RankSum(const Id& id, int64_t rank, int64_t size);

  /// `count` numbers of this process's GPU become their sums over the ranks, in the order of the
  /// calls of this folder; may be recorded (Graph), by all ranks or none. All ranks call it.
  void add(float* numbers, int64_t count) const;

 private:
  struct Communicator;
  std::shared_ptr<Communicator> communicator_;
};

}  // namespace weft::cuda
