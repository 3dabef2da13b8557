#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "weft/core/files/file.h"

namespace weft::dist {

// What goes over a connection to the job's store: first a proof of the job's key from both sides,
// then messages of a length and that many bytes.

using StoreClock = std::chrono::steady_clock;

/// What one message may hold; a longer one ends the connection.
inline constexpr size_t kMaxMessageBytes = 64 << 20;
/// Within this a server answers what it can answer at once, and a stranger must have proven the
/// key.
inline constexpr std::chrono::seconds kAnswerTime{5};

/// What a client asks for. Numbers are part of what ranks of one build agree on.
enum class StoreOp : uint8_t {
  kSet = 1,
  kGet,
  kAdd,
  kCompareSet,
  kDelete,
  kCheck,
  kWait,
  kCount,
  kBeat,
  kLeave,
  kPropose,
};

/// Builds one message: fields one after the other.
class MessageWriter {
 public:
  MessageWriter& number(int64_t value);
  MessageWriter& text(std::string_view value);
  MessageWriter& op(StoreOp value) { return number(static_cast<int64_t>(value)); }
  /// The message with its length before it.
  std::string framed() const;

 private:
  std::string bytes_;
};

/// Takes a message apart. Throws CommError where it is shorter than its fields.
class MessageReader {
 public:
  explicit MessageReader(std::string message) : bytes_(std::move(message)) {}
  int64_t number();
  std::string text();
  StoreOp op() { return static_cast<StoreOp>(number()); }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

/// Takes the first whole message off `bytes`; false if it has not come yet. Throws CommError for a
/// length beyond kMaxMessageBytes.
bool take_message(std::string& bytes, std::string& message);

/// Sends all of `bytes`, or receives exactly `count`, before `deadline` over a socket that does not
/// block. Throw CommError: the time is over, or the other side has closed the connection.
void send_all(int socket, std::string_view bytes, StoreClock::time_point deadline);
std::string receive_exactly(int socket, size_t count, StoreClock::time_point deadline);
/// The next message. Throws as the above.
std::string receive_message(int socket, StoreClock::time_point deadline);

// The proof. The server speaks first: its greeting, which ends with a random challenge. The client
// answers with a challenge of its own and the digest of both under the key, and gets 'y' with the
// server's digest, or 'n'.
inline constexpr std::string_view kStoreGreeting = "weft store 1\n";
inline constexpr size_t kChallengeBytes = 32;
inline constexpr size_t kClientProofBytes = 2 * kChallengeBytes;

/// The digests by which client and server show that they know `key`.
std::string client_proof(std::string_view key, std::string_view server_challenge,
                         std::string_view client_challenge);
std::string server_proof(std::string_view key, std::string_view server_challenge,
                         std::string_view client_challenge);

/// The client's side of the proof on a connected socket. Throws ConfigError if the server has
/// another key, CommError if it is no store of weft or does not answer in time.
void prove_key(int socket, std::string_view key, const std::string& where,
               StoreClock::time_point deadline);

/// A connection to the store at `address`:`port` on which the key is proven. Names that are not
/// known yet and servers that do not listen yet are tried again until `deadline`. Throws CommError,
/// saying what the last try met; ConfigError as prove_key does.
core::FileDescriptor connect_to_store(const std::string& address, int port, std::string_view key,
                                      StoreClock::time_point deadline);

}  // namespace weft::dist
