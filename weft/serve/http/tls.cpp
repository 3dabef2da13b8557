#include "weft/serve/http/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/core/log.h"

namespace weft::serve {
namespace {

using core::ConfigError;
using core::FormatError;

constexpr uint64_t kMaxPemBytes = 1 << 20;

template <auto kFree>
struct Freed {
  template <class Object>
  void operator()(Object* object) const {
    kFree(object);
  }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

// Of the last call that failed on this thread.
std::string openssl_reason() {
  const unsigned long code = ERR_peek_last_error();
  const char* const reason =
      ERR_SYSTEM_ERROR(code) ? std::strerror(ERR_GET_REASON(code)) : ERR_reason_error_string(code);
  ERR_clear_error();
  return reason == nullptr ? "no reason given" : reason;
}

Bio reader_of(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Throws FormatError unless what was read before is there.
void check_read(bool is_there, const std::string& path, const char* expected) {
  if (is_there) return;
  core::fail<FormatError>(path, ": ", openssl_reason(), ", expected ", expected);
}

void use_chain(SSL_CTX* context, const std::string& path) {
  const std::string text = core::read_text_file(path, kMaxPemBytes);
  const Bio reader = reader_of(text);
  const Certificate first(PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr));
  check_read(first != nullptr, path,
             "a certificate in PEM form (-----BEGIN CERTIFICATE-----); `openssl x509` writes one");
  if (SSL_CTX_use_certificate(context, first.get()) != 1) {
    core::fail<ConfigError>(path, ": OpenSSL refuses the certificate: ", openssl_reason(),
                            "; make one with a longer key");
  }
  while (X509* const next = PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr)) {
    if (SSL_CTX_add0_chain_cert(context, next) != 1) X509_free(next);
  }
  const unsigned long end = ERR_peek_last_error();
  check_read(ERR_GET_LIB(end) == ERR_LIB_PEM && ERR_GET_REASON(end) == PEM_R_NO_START_LINE, path,
             "only certificates after the first; write the file again");
  ERR_clear_error();
}

void use_key(SSL_CTX* context, const TlsFiles& files) {
  const std::string text = core::read_text_file(files.key, kMaxPemBytes);
  const Bio reader = reader_of(text);
  bool is_encrypted = false;
  const auto no_passphrase = [](char*, int, int, void* asked) {
    *static_cast<bool*>(asked) = true;
    return -1;
  };
  const Key key(PEM_read_bio_PrivateKey(reader.get(), nullptr, no_passphrase, &is_encrypted));
  core::check<FormatError>(!is_encrypted, files.key,
                           ": encrypted, expected a key without a passphrase; `openssl pkey` "
                           "writes one");
  // Of each form that it tries OpenSSL says something else.
  core::check<FormatError>(key != nullptr, files.key,
                           ": not a private key, expected one in PEM form (-----BEGIN PRIVATE "
                           "KEY-----); `openssl pkey` writes one");
  const bool is_own = X509_check_private_key(SSL_CTX_get0_certificate(context), key.get()) == 1 &&
                      SSL_CTX_use_PrivateKey(context, key.get()) == 1;
  ERR_clear_error();
  core::check<ConfigError>(is_own, files.key, ": not the key of the first certificate in ",
                           files.certificate, "; give the two that belong together");
}

void warn_of_readers(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0 || (info.st_mode & S_IROTH) == 0) return;
  core::log(core::LogLevel::kWarn, path,
            ": every user of this machine can read the key; chmod 600 it");
}

std::shared_ptr<SSL_CTX> load(const TlsFiles& files) {
  ERR_clear_error();
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (context == nullptr) core::fail<core::InternalError>("serve: OpenSSL: ", openssl_reason());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  // Clients that go without a farewell are as usual in HTTP, which knows where its messages end.
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  // Clients keep their sessions in tickets; here they would take memory.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  use_chain(context.get(), files.certificate);
  use_key(context.get(), files);
  warn_of_readers(files.key);
  return context;
}

// Another one whenever a file has been written or replaced.
std::string stamp_of(const TlsFiles& files) {
  std::string stamp;
  for (const std::string& path : {files.certificate, files.key}) {
    struct stat info = {};
    if (::stat(path.c_str(), &info) != 0) info = {};
    stamp += core::join(info.st_dev, ' ', info.st_ino, ' ', info.st_size, ' ', info.st_mtim.tv_sec,
                        ' ', info.st_mtim.tv_nsec, '\n');
  }
  return stamp;
}

}  // namespace

TlsContext::TlsContext(TlsFiles files)
    : files_(std::move(files)), stamp_(stamp_of(files_)), context_(load(files_)) {}

void TlsContext::refresh() {
  std::string stamp = stamp_of(files_);
  if (stamp == stamp_) return;
  stamp_ = std::move(stamp);
  try {
    context_ = load(files_);
    core::log(core::LogLevel::kInfo, "serve: the certificate in ", files_.certificate,
              " was read again");
  } catch (const core::Error& error) {
    core::log(core::LogLevel::kWarn, "serve: the former certificate stays in use: ", error.what());
  }
}

TlsSession::TlsSession(const TlsContext& context, int socket)
    : session_(SSL_new(context.context_.get()), SSL_free) {
  if (session_ == nullptr || SSL_set_fd(session_.get(), socket) != 1) throw std::bad_alloc();
  SSL_set_accept_state(session_.get());
}

TlsStep TlsSession::handshake() {
  ERR_clear_error();
  return step_of(SSL_do_handshake(session_.get()), 0);
}

TlsStep TlsSession::read(std::span<char> buffer) {
  ERR_clear_error();
  size_t size = 0;
  const int result = SSL_read_ex(session_.get(), buffer.data(), buffer.size(), &size);
  return step_of(result, size);
}

TlsStep TlsSession::peek() {
  ERR_clear_error();
  char byte = 0;
  size_t size = 0;
  const int result = SSL_peek_ex(session_.get(), &byte, 1, &size);
  return step_of(result, size);
}

TlsStep TlsSession::write(std::string_view text) {
  ERR_clear_error();
  size_t size = 0;
  const int result = SSL_write_ex(session_.get(), text.data(), text.size(), &size);
  return step_of(result, size);
}

TlsStep TlsSession::close_notify() {
  // A broken session has nothing to say.
  if (!failure_.empty()) return {TlsState::kFailed, 0};
  ERR_clear_error();
  const int result = SSL_shutdown(session_.get());
  // 0: it is sent, and the client has not answered it, which nobody waits for.
  return result >= 0 ? TlsStep{} : step_of(result, 0);
}

TlsStep TlsSession::step_of(int result, size_t size) {
  if (result > 0) return {TlsState::kDone, size};
  const int error_number = errno;
  switch (SSL_get_error(session_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return {TlsState::kWantsRead, 0};
    case SSL_ERROR_WANT_WRITE:
      return {TlsState::kWantsWrite, 0};
    case SSL_ERROR_ZERO_RETURN:
      return {TlsState::kEnded, 0};
    case SSL_ERROR_SYSCALL:
      failure_ = error_number == 0 ? "the client has gone" : std::strerror(error_number);
      break;
    default:
      failure_ = openssl_reason();
  }
  ERR_clear_error();
  return {TlsState::kFailed, 0};
}

}  // namespace weft::serve
