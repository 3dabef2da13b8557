#include "weft/dist/launch/run_together.h"

#include <ATen/ops/zeros.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "weft/core/error.h"

namespace weft::dist {
namespace {

template <class E>
bool throw_if(const std::string& type, const std::string& message) {
  if (type == E("").type()) throw E(message);
  return false;
}

[[noreturn]] void throw_again(const std::string& type, const std::string& message) {
  throw_if<core::ConfigError>(type, message);
  throw_if<core::ShapeError>(type, message);
  throw_if<core::FormatError>(type, message);
  throw_if<core::CommError>(type, message);
  throw_if<core::IoError>(type, message);
  throw core::InternalError(message);
}

// "TYPE MESSAGE", or nothing if it ran well.
std::string failure_of(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const core::Error& error) {
    return core::join(error.type(), " ", error.what());
  } catch (const std::bad_alloc&) {
    return "IoError out of memory; use more ranks";
  } catch (const std::exception& error) {
    return core::join("InternalError ", error.what());
  }
}

// What a rank says that is still at work: no error is this.
constexpr std::string_view kWorks = "\1";
// Often enough for the shortest limit of a collective.
constexpr std::chrono::milliseconds kSayPeriod{500};

// What all ranks say, one after the other, with a NUL before and behind each.
std::string gather_said(const Group& group, std::string_view own) {
  at::Tensor bytes = at::zeros({std::ssize(own) + 1}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr<uint8_t>(), own.data(), own.size());
  const at::Tensor all = group.all_gather(bytes, 0).contiguous();
  return std::string(1, '\0').append(reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>()),
                                     static_cast<size_t>(all.numel()));
}

bool does_any_work(std::string_view said) {
  return said.find(std::string_view("\0\1\0", 3)) != said.npos;
}

// How work has gone that ranks wait for. While it takes its time, the rank says so again and again
// on a thread of its own: the limit of a collective is for ranks that don't answer.
class AwaitedWork {
 public:
  explicit AwaitedWork(const Group& group) : group_(group) {
    try {
      beside_ = std::thread([this] { exchange(); });
    } catch (const std::system_error&) {
      // Where no thread can begin, this rank says only how its work has ended.
    }
  }
  AwaitedWork(const AwaitedWork&) = delete;
  AwaitedWork& operator=(const AwaitedWork&) = delete;
  ~AwaitedWork() {
    if (!failure_.has_value()) end("InternalError left early");
  }

  // The failures of all ranks, those without being empty. Throws what the collectives threw.
  std::string finish(std::string failure) {
    end(std::move(failure));
    if (lost_) std::rethrow_exception(lost_);
    return said_;
  }

 private:
  void end(std::string failure) {
    {
      const std::lock_guard lock(mutex_);
      failure_ = std::move(failure);
    }
    has_changed_.notify_one();
    if (beside_.joinable()) {
      beside_.join();
    } else {
      exchange();
    }
  }

  void exchange() {
    try {
      do {
        said_ = gather_said(group_, wait_a_while());
      } while (does_any_work(said_));
    } catch (...) {
      lost_ = std::current_exception();
    }
  }

  std::string wait_a_while() {
    std::unique_lock lock(mutex_);
    has_changed_.wait_for(lock, kSayPeriod, [&] { return failure_.has_value(); });
    return failure_.value_or(std::string(kWorks));
  }

  const Group& group_;
  std::mutex mutex_;
  std::condition_variable has_changed_;
  std::optional<std::string> failure_;
  std::string said_;
  std::exception_ptr lost_;
  std::thread beside_;
};

}  // namespace

void run_together(const Group& group, const std::function<void()>& work) {
  if (group.size() == 1) {
    work();
    return;
  }
  AwaitedWork awaited(group);
  const std::string texts = awaited.finish(failure_of(work));
  const size_t begin = texts.find_first_not_of('\0');
  if (begin == std::string::npos) return;
  const std::string failure = texts.substr(begin).c_str();
  const size_t space = failure.find(' ');
  throw_again(failure.substr(0, space), failure.substr(space + 1));
}

}  // namespace weft::dist
