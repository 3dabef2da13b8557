#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "weft/serve/batch/batch_file.h"
#include "weft/serve/http/server.h"

namespace weft::serve {

/// Asks the requests of a batch, a bounded number at once, on a thread of its own, and tells the
/// answers in the order of the requests.
class BatchRun {
 public:
  /// Answers and their requests; called on the run's thread, in order. Must not throw.
  using Sink = std::function<void(const BatchRequest& request, const HttpAnswer& answer)>;

  /// `handle` is what a server would call for each request; it and `sink` outlive this. At most
  /// `most` are asked at once, and none whose answer would wait for that of one more than `kAhead`
  /// times so many before it. Throws IoError if the system allows no further thread.
  BatchRun(std::vector<BatchRequest> requests, size_t most, HttpHandler handle, Sink sink);
  /// Waits for the answers to what was asked.
  ~BatchRun();
  BatchRun(const BatchRun&) = delete;
  BatchRun& operator=(const BatchRun&) = delete;

  /// No further request is asked. On any thread.
  void stop();
  /// Whether all that is going to be asked has been answered and told. On any thread.
  bool is_done() const;

 private:
  static constexpr size_t kAhead = 8;
  class Reply;

  void run();
  void take(size_t index, HttpAnswer answer);
  bool may_ask() const;
  void tell(std::unique_lock<std::mutex>& lock);

  std::vector<BatchRequest> requests_;
  size_t most_;
  HttpHandler handle_;
  Sink sink_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  /// Answers that wait for one before them.
  std::map<size_t, HttpAnswer> answers_;
  size_t num_asked_ = 0, num_answered_ = 0, num_told_ = 0;
  bool stops_ = false, is_done_ = false;
  /// Last: it uses the others.
  std::thread thread_;
};

}  // namespace weft::serve
