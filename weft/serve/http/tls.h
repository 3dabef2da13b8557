#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "weft/serve/http/server.h"

// OpenSSL's types, which tls.cpp alone knows.
struct ssl_ctx_st;
struct ssl_st;

namespace weft::serve {

/// TLS 1.2 and 1.3 with OpenSSL's default ciphers, under one certificate.
class TlsContext {
 public:
  /// Throws FormatError or IoError, as core::read_text_file, and FormatError for files that hold
  /// something else; ConfigError for a key of another certificate, or a certificate that OpenSSL
  /// finds too weak. Warns of a key that every user of the machine can read.
  explicit TlsContext(TlsFiles files);

  /// Reads the files again if they have changed: later sessions show the new certificate. Where
  /// they are wrong, a warning says how, and the former ones stay in use.
  void refresh();

 private:
  friend class TlsSession;

  TlsFiles files_;
  std::string stamp_;
  std::shared_ptr<ssl_ctx_st> context_;
};

/// How far an operation on a socket came that may not wait.
enum class TlsState {
  kDone,
  /// Again when the socket can be read, or written.
  kWantsRead,
  kWantsWrite,
  /// The client has ended its side.
  kEnded,
  /// The session is broken.
  kFailed,
};

/// And how many bytes it moved.
struct TlsStep {
  TlsState state = TlsState::kDone;
  size_t size = 0;
};

/// TLS between the server and one client. For one thread.
class TlsSession {
 public:
  /// `socket` is a descriptor that does not block; it is not closed, and outlives all calls.
  TlsSession(const TlsContext& context, int socket);

  /// Before anything else, until it is done.
  TlsStep handshake();
  TlsStep read(std::span<char> buffer);
  /// Whether there are bytes to read; takes none.
  TlsStep peek();
  /// What follows kWantsRead or kWantsWrite must begin with the same bytes.
  TlsStep write(std::string_view text);
  /// Tells the client that no more comes.
  TlsStep close_notify();

  /// Why it failed, in OpenSSL's words.
  const std::string& failure() const { return failure_; }

 private:
  TlsStep step_of(int result, size_t size);

  std::shared_ptr<ssl_st> session_;
  std::string failure_;
};

}  // namespace weft::serve
