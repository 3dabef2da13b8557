#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "weft/serve/api/access.h"
#include "weft/serve/api/completions.h"
#include "weft/serve/api/metrics.h"
#include "weft/serve/api/worker.h"
#include "weft/serve/http/server.h"

namespace weft::serve {

/// OpenAI's API for one model: routes, keys and errors. Handles requests on the server's thread
/// while a scheduler runs on another.
class Service {
 public:
  /// Requests that wait to be read, whose bodies may each be as long as the server allows.
  static constexpr size_t kMostUnread = 64;

  /// `has_page`: also answers with the chat page, at /. `logs_json`: as Metrics. Where more than
  /// `most_unread` requests wait to be read, further ones get 429.
  Service(AccessOptions access, bool has_page, bool logs_json, size_t most_unread = kMostUnread);

  /// Answers a request, now or later; never throws. Clients' texts, which may be long, are read on
  /// a thread of the service, one request after the other.
  void handle(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) noexcept;
  /// From now on there is a model; before, requests get 503. Once, on any thread.
  void open(ServedModel model);
  /// From now on requests get 503 with this reason. On any thread.
  void set_fault(const std::string& reason);
  /// Requests that are being read are dropped: nobody is answered any more. To be called before the
  /// server ends that the answers go to.
  void stop();
  /// Counts a client with which there is no TLS session. On any thread.
  void count_failed_handshake(const std::string& reason) { metrics_.add_failed_handshake(reason); }

  /// The answer to a request that the server refuses by itself, which is counted. On any thread.
  HttpAnswer refusal(int status, const std::string& message);

 private:
  using Reply = std::shared_ptr<HttpReply>;
  struct Route;
  static const std::vector<Route>& routes();

  std::optional<HttpAnswer> page(const HttpRequest& request) const;
  void dispatch(const HttpRequest& request, const Reply& reply);
  void run(const HttpRequest& request, const Reply& reply,
           const std::function<void()>& action) noexcept;
  Completions& completions() const;
  const ServedModel& model() const { return completions().model(); }

  void health(const HttpRequest& request, const Reply& reply);
  void metrics(const HttpRequest& request, const Reply& reply);
  void models(const HttpRequest& request, const Reply& reply);
  void slots(const HttpRequest& request, const Reply& reply);
  void tokenize(const HttpRequest& request, const Reply& reply);
  void detokenize(const HttpRequest& request, const Reply& reply);
  void chat(const HttpRequest& request, const Reply& reply);
  void complete(const HttpRequest& request, const Reply& reply);
  void embed(const HttpRequest& request, const Reply& reply);
  void respond(const HttpRequest& request, const Reply& reply);

  AccessOptions access_;
  bool has_page_;
  Metrics metrics_;
  mutable std::mutex mutex_;
  /// Set once; null until the model is there.
  std::unique_ptr<Completions> completions_;
  std::string fault_;
  /// Reads requests; ends before what it uses.
  Worker reader_;
};

}  // namespace weft::serve
