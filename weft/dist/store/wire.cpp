#include "weft/dist/store/wire.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "weft/core/error.h"
#include "weft/core/sha256.h"

namespace weft::dist {
namespace {

using core::CommError;

constexpr const char* kStore = "dist.store: ";
constexpr size_t kNumberBytes = 8;

void append_number(std::string& bytes, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(value >> shift);
}

uint64_t read_number(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < kNumberBytes; ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return value;
}

uint64_t checked_length(std::string_view bytes) {
  const uint64_t length = read_number(bytes);
  core::check<CommError>(length <= kMaxMessageBytes, kStore, "expected a message of at most ",
                         kMaxMessageBytes, " bytes, got ", length);
  return length;
}

void wait_for_socket(int socket, short what, StoreClock::time_point deadline) {
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - StoreClock::now()).count();
    core::check<CommError>(left > 0, kStore, "the other side does not answer");
    pollfd polled{socket, what, 0};
    constexpr int64_t kLongest = 1'000'000;
    if (::poll(&polled, 1, static_cast<int>(std::min(left, kLongest))) > 0) return;
  }
}

[[noreturn]] void fail_closed(int error) {
  core::fail<CommError>(kStore, "the other side has closed the connection",
                        error == 0 ? "" : core::join(" (", std::strerror(error), ")"));
}

}  // namespace

MessageWriter& MessageWriter::number(int64_t value) {
  append_number(bytes_, static_cast<uint64_t>(value));
  return *this;
}

MessageWriter& MessageWriter::text(std::string_view value) {
  append_number(bytes_, value.size());
  bytes_ += value;
  return *this;
}

std::string MessageWriter::framed() const {
  std::string all;
  append_number(all, bytes_.size());
  return all + bytes_;
}

int64_t MessageReader::number() {
  core::check<CommError>(bytes_.size() - at_ >= kNumberBytes, kStore,
                         "expected a number in a message, got its end");
  const auto value = static_cast<int64_t>(read_number(std::string_view(bytes_).substr(at_)));
  at_ += kNumberBytes;
  return value;
}

std::string MessageReader::text() {
  const auto length = static_cast<uint64_t>(number());
  core::check<CommError>(length <= bytes_.size() - at_, kStore, "expected a text of ", length,
                         " bytes in a message, got ", bytes_.size() - at_);
  at_ += length;
  return bytes_.substr(at_ - length, length);
}

bool take_message(std::string& bytes, std::string& message) {
  if (bytes.size() < kNumberBytes) return false;
  const uint64_t length = checked_length(bytes);
  if (bytes.size() - kNumberBytes < length) return false;
  message = bytes.substr(kNumberBytes, length);
  bytes.erase(0, kNumberBytes + length);
  return true;
}

void send_all(int socket, std::string_view bytes, StoreClock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_for_socket(socket, POLLOUT, deadline);
    } else if (errno != EINTR) {
      fail_closed(errno);
    }
  }
}

std::string receive_exactly(int socket, size_t count, StoreClock::time_point deadline) {
  std::string bytes;
  std::array<char, 16 << 10> piece;
  while (bytes.size() < count) {
    const size_t wanted = std::min(piece.size(), count - bytes.size());
    const ssize_t got = ::recv(socket, piece.data(), wanted, MSG_DONTWAIT);
    if (got > 0) {
      bytes.append(piece.data(), static_cast<size_t>(got));
    } else if (got == 0) {
      fail_closed(0);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_for_socket(socket, POLLIN, deadline);
    } else if (errno != EINTR) {
      fail_closed(errno);
    }
  }
  return bytes;
}

std::string receive_message(int socket, StoreClock::time_point deadline) {
  const uint64_t length = checked_length(receive_exactly(socket, kNumberBytes, deadline));
  return receive_exactly(socket, length, deadline);
}

std::string client_proof(std::string_view key, std::string_view server_challenge,
                         std::string_view client_challenge) {
  return core::hmac_sha256(key, core::join("client ", server_challenge, client_challenge));
}

std::string server_proof(std::string_view key, std::string_view server_challenge,
                         std::string_view client_challenge) {
  return core::hmac_sha256(key, core::join("server ", server_challenge, client_challenge));
}

void prove_key(int socket, std::string_view key, const std::string& where,
               StoreClock::time_point deadline) {
  const std::string greeting = receive_exactly(socket, kStoreGreeting.size(), deadline);
  core::check<CommError>(greeting == kStoreGreeting, kStore, where,
                         ": expected a store of weft, got another server; is the port used by "
                         "something else?");
  const std::string theirs = receive_exactly(socket, kChallengeBytes, deadline);
  const std::string ours = core::random_bytes(kChallengeBytes);
  send_all(socket, ours + client_proof(key, theirs, ours), deadline);
  const bool accepted = receive_exactly(socket, 1, deadline) == "y";
  core::check<core::ConfigError>(accepted, kStore, where,
                                 ": expected the key of this job, got another; give all hosts the "
                                 "same WEFT_JOB_KEY or WEFT_JOB_KEY_FILE");
  const std::string answer = receive_exactly(socket, core::kSha256Bytes, deadline);
  core::check<core::ConfigError>(
      core::equal_in_constant_time(answer, server_proof(key, theirs, ours)), kStore, where,
      ": the server there does not know the job's key; is it another job's?");
}

}  // namespace weft::dist
