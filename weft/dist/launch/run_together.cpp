#include "weft/dist/launch/run_together.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <new>
#include <string>

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

}  // namespace

void run_together(const Group& group, const std::function<void()>& work) {
  if (group.size() == 1) {
    work();
    return;
  }
  // Each with its ending NUL, so that no rank sends nothing.
  const std::string own = failure_of(work);
  at::Tensor bytes = at::empty({static_cast<int64_t>(own.size()) + 1}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr<uint8_t>(), own.c_str(), own.size() + 1);
  const at::Tensor all = group.all_gather(bytes, 0).contiguous();
  const std::string texts(reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>()),
                          static_cast<size_t>(all.numel()));
  const size_t begin = texts.find_first_not_of('\0');
  if (begin == std::string::npos) return;
  const std::string failure = texts.substr(begin).c_str();
  const size_t space = failure.find(' ');
  throw_again(failure.substr(0, space), failure.substr(space + 1));
}

}  // namespace weft::dist
