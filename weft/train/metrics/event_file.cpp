#include "weft/train/metrics/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>

#include "weft/core/error.h"
#include "weft/core/files/line_file.h"
#include "weft/train/metrics/crc32c.h"

namespace weft::train {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie");

// Types of fields in protobuf's wire format.
constexpr uint32_t kVarint = 0;
constexpr uint32_t kFixed64 = 1;
constexpr uint32_t kBytes = 2;
constexpr uint32_t kFixed32 = 5;

// Fields of Event, Summary, Summary.Value and SessionLog.
constexpr uint32_t kEventWallTime = 1;
constexpr uint32_t kEventStep = 2;
constexpr uint32_t kEventFileVersion = 3;
constexpr uint32_t kEventSummary = 5;
constexpr uint32_t kEventSessionLog = 7;
constexpr uint32_t kSummaryValue = 1;
constexpr uint32_t kValueTag = 1;
constexpr uint32_t kValueSimpleValue = 2;
constexpr uint32_t kSessionLogStatus = 1;
constexpr uint64_t kSessionStart = 1;

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7F) | 0x80);
  bytes += static_cast<char>(value);
  return bytes;
}

std::string key(uint32_t field, uint32_t type) { return varint((field << 3) | type); }

std::string bytes_field(uint32_t field, const std::string& bytes) {
  return key(field, kBytes) + varint(bytes.size()) + bytes;
}

std::string event_head(double wall_time, int64_t step) {
  std::string head = key(kEventWallTime, kFixed64) + raw(wall_time);
  // What has its default is left out.
  if (step != 0) head += key(kEventStep, kVarint) + varint(static_cast<uint64_t>(step));
  return head;
}

uint32_t masked_crc(const std::string& bytes) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return std::rotr(crc, 15) + 0xA282EAD8U;
}

double now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

std::string file_name(double wall_time) {
  char host[256] = "host";
  ::gethostname(host, sizeof host - 1);
  return core::join("events.out.tfevents.", static_cast<int64_t>(wall_time * 1000), ".", host, ".",
                    ::getpid());
}

}  // namespace

std::string encode_version_event(double wall_time) {
  return event_head(wall_time, 0) + bytes_field(kEventFileVersion, "brain.Event:2");
}

std::string encode_scalars_event(double wall_time, int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [tag, number] : scalars) {
    const std::string value = bytes_field(kValueTag, tag) + key(kValueSimpleValue, kFixed32) +
                              raw(static_cast<float>(number));
    summary += bytes_field(kSummaryValue, value);
  }
  return event_head(wall_time, step) + bytes_field(kEventSummary, summary);
}

std::string encode_start_event(double wall_time, int64_t step) {
  const std::string log = key(kSessionLogStatus, kVarint) + varint(kSessionStart);
  return event_head(wall_time, step) + bytes_field(kEventSessionLog, log);
}

std::string frame_record(const std::string& message) {
  const std::string length = raw(static_cast<uint64_t>(message.size()));
  return length + raw(masked_crc(length)) + message + raw(masked_crc(message));
}

EventFile::EventFile(const std::string& folder, int64_t resumed_step) {
  const double time = now();
  path_ = folder + "/" + file_name(time);
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC;
  fd_ = core::FileDescriptor(::open(path_.c_str(), flags, 0666));
  if (!fd_.is_open()) core::fail_errno(path_, "cannot make", errno);
  write(frame_record(encode_version_event(time)));
  if (resumed_step > 0) write(frame_record(encode_start_event(time, resumed_step + 1)));
}

void EventFile::append(int64_t step, const Scalars& scalars) {
  write(frame_record(encode_scalars_event(now(), step, scalars)));
}

void EventFile::write(const std::string& bytes) { core::append_piece(fd_, path_, bytes); }

}  // namespace weft::train
