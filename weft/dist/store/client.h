#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/dist/store/wire.h"

namespace weft::dist {

/// Where a job's store listens, and the key that opens it.
struct StoreEndpoint {
  std::string address;
  int port = 0;
  std::string key;
  /// How long the server may take to answer what it can answer at once.
  std::chrono::milliseconds answer_time = kAnswerTime;
};

/// Nobody has set a key in time.
class StoreTimeout : public core::CommError {
 public:
  using core::CommError::CommError;
};

/// A store that a StoreServer serves, as c10d knows stores. Each request has a limit: CommError is
/// thrown when the server has not answered within the endpoint's answer_time (wait and get: after
/// their own time), and by each request after that. Threads may share it.
class StoreClient : public c10d::Store {
 public:
  /// Connects within `timeout`, which also becomes the limit of get and wait. Throws as
  /// connect_to_store does.
  StoreClient(StoreEndpoint endpoint, std::chrono::milliseconds timeout);

  c10::intrusive_ptr<c10d::Store> clone() override;
  using c10d::Store::compareSet;
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& current_value,
                                  const std::vector<uint8_t>& new_value) override;
  /// Waits for the key.
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  /// Throw StoreTimeout.
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

 private:
  /// `more` is what the server may take by the request itself.
  MessageReader ask(const MessageWriter& request, std::chrono::milliseconds more = {});

  StoreEndpoint endpoint_;
  std::mutex mutex_;
  core::FileDescriptor socket_;
};

}  // namespace weft::dist
