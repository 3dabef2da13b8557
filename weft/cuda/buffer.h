#pragma once

#include <cstdint>
#include <span>
#include <utility>

namespace weft::cuda {

/// Memory of this process's GPU. What is copied, and what kernels do with it, happens in the order
/// of the calls. Throws IoError where there is no room.
class Buffer {
 public:
  Buffer() = default;
  /// `bytes` without values; 0: none.
  explicit Buffer(int64_t bytes);
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        num_bytes_(std::exchange(other.num_bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  /// A copy of the host's numbers.
  template <class T>
  static Buffer of(std::span<const T> values) {
    Buffer made(static_cast<int64_t>(values.size_bytes()));
    made.upload(values.data(), made.num_bytes());
    return made;
  }
  /// Makes room for `bytes`, at another place and without the former values if there was less.
  /// Returns whether the place is another.
  bool make_room(int64_t bytes);
  /// Copies from and to the host's memory, `bytes` of it, at the begin of this. What was copied may
  /// be changed or used when it returns. Throws InternalError if that is more than there is.
  void upload(const void* from, int64_t bytes);
  void download(void* to, int64_t bytes) const;

  int64_t num_bytes() const { return num_bytes_; }
  bool is_empty() const { return data_ == nullptr; }
  /// Null if empty. Not to be read or written by the host.
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  int64_t num_bytes_ = 0;
};

/// Runs of `bytes` within this GPU's memory: row i goes from `from + i * from_stride` to
/// `to + i * to_stride`.
struct RowCopy {
  void* to = nullptr;
  const void* from = nullptr;
  int64_t rows = 0, bytes = 0;
  int64_t to_stride = 0, from_stride = 0;
};
/// Copies the rows, which don't overlap.
void copy_rows(const RowCopy& call);

}  // namespace weft::cuda
