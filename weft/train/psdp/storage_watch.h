#pragma once

#include <c10/core/StorageImpl.h>

#include <functional>

namespace weft::train {

/// Calls `before_use` ahead of every libtorch operation of this thread, and of any backward, that
/// is about to take a tensor in `storage`, just before it runs: how parameters come to be where
/// they are used, in any module, without its code knowing. Operations within the call are not
/// reported. Code that reads a tensor by its pointer is not seen; one operation on it before, e.g.
/// detach(), is enough. `before_use` must not throw. Not to be made or destroyed while operations
/// run.
class StorageWatch {
 public:
  StorageWatch(const c10::StorageImpl* storage, std::function<void()> before_use);
  StorageWatch(const StorageWatch&) = delete;
  StorageWatch& operator=(const StorageWatch&) = delete;
  ~StorageWatch();

 private:
  const c10::StorageImpl* storage_;
};

/// While one lives, this thread's operations are not reported.
class WatchPause {
 public:
  WatchPause();
  WatchPause(const WatchPause&) = delete;
  WatchPause& operator=(const WatchPause&) = delete;
  ~WatchPause();

 private:
  bool was_paused_;
};

}  // namespace weft::train
