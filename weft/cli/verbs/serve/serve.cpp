#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "weft/cli/model/session.h"
#include "weft/cli/streams.h"
#include "weft/cli/verbs/run.h"
#include "weft/cli/verbs/serve/key_file.h"
#include "weft/cli/verbs/serve/served.h"
#include "weft/core/clock.h"
#include "weft/core/error.h"
#include "weft/core/log.h"
#include "weft/core/terminal/printable.h"
#include "weft/serve/routes/service.h"

namespace weft::cli {
namespace {

// When the ranks that this process starts have begun to answer, by the steady clock in nanoseconds;
// 0: they have not. They share it, being copies of this process, but for those that are programs of
// their own (NCCL's).
class OpenedTime {
 public:
  OpenedTime() {
    void* const memory =
        ::mmap(nullptr, sizeof(Time), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) core::fail_errno("serve", "cannot map memory", errno);
    time_ = new (memory) Time(0);
  }
  OpenedTime(const OpenedTime&) = delete;
  OpenedTime& operator=(const OpenedTime&) = delete;
  ~OpenedTime() { ::munmap(time_, sizeof(Time)); }

  void clear() { *time_ = 0; }
  void note() { *time_ = now(); }
  /// 0: never.
  double seconds_since() const {
    const int64_t time = *time_;
    return time == 0 ? 0 : static_cast<double>(now() - time) * 1e-9;
  }

 private:
  using Time = std::atomic<int64_t>;
  static int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

  Time* time_;
};

// One for this process and its copies.
OpenedTime& opened_time() {
  static OpenedTime time;
  return time;
}

// What rank 0 alone has: the clients, and who decides what is done for them.
class Front : public ServedFront {
 public:
  explicit Front(const ServeVerbOptions& options)
      : options_(options),
        service_(access_of(options), !options.has_no_page, options.logs_json),
        server_(http_options(options), handler()) {}
  ~Front() override { service_.stop(); }

  // The first signal, which may have come to another rank alone, lets what was asked for be
  // answered; a second one to this rank does not.
  void before_step() override {
    if (caught_signal() == 0) return;
    scheduler()->drain();
    if (num_signals() > 1) scheduler()->end_all("the server was told to end at once");
  }

  void fail(const std::string& reason) override {
    service_.set_fault(reason);
    if (scheduler() != nullptr) scheduler()->end_all(reason);
    server_.finish(std::chrono::milliseconds(500));
  }

  void finish() override { server_.finish(std::chrono::seconds(5)); }

 private:
  void open_model(serve::ServedModel model) override {
    const std::string name = core::printable(model.name);
    service_.open(std::move(model));
    opened_time().note();
    const std::string place = core::join(options_.certificate_file.empty() ? "http" : "https",
                                         "://", options_.host, ":", server_.port());
    std::fprintf(stderr, "weft serve: %s on %s/v1\n", name.c_str(), place.c_str());
    if (!options_.has_no_page) {
      std::fprintf(stderr, "weft serve: chat page on %s/\n", place.c_str());
    }
  }
  static serve::AccessOptions access_of(const ServeVerbOptions& options) {
    const std::vector<std::string> keys = read_keys(options.api_key_file);
    return {keys, options.cors_origins, keys.empty()};
  }
  serve::HttpOptions http_options(const ServeVerbOptions& options) {
    serve::HttpOptions http;
    http.host = options.host;
    http.port = static_cast<uint16_t>(options.port);
    http.tls = {options.certificate_file, options.key_file};
    http.max_connections = static_cast<size_t>(options.max_connections);
    http.on_failed_handshake = [this](const std::string& reason) {
      service_.count_failed_handshake(reason);
    };
    http.refusal = [this](int status, const std::string& message) {
      return service_.refusal(status, message);
    };
    http.fields = [access = access_of(options)](const serve::HttpRequest& request) {
      return serve::answer_fields(request, access);
    };
    return http;
  }
  serve::HttpHandler handler() {
    return
        [this](const serve::HttpRequest& request, const std::shared_ptr<serve::HttpReply>& reply) {
          service_.handle(request, reply);
        };
  }

  const ServeVerbOptions& options_;
  serve::Service service_;
  // Ends first: its thread uses the others.
  serve::HttpServer server_;
};

int serve_on_ranks(const ModelOptions& model, const dist::World& world,
                   const ServeVerbOptions& options) {
  if (std::getenv("WEFT_LOG_LEVEL") == nullptr) core::set_log_level(core::LogLevel::kInfo);
  return run_served(options, model, world, [&] { return std::make_unique<Front>(options); });
}

}  // namespace

// Where this process has started the ranks, a lost one is this status; where it is a rank, an
// exception.
int run_serve(const ServeVerbOptions& options) {
  constexpr int kRankLost = 4;
  constexpr int kMostFailures = 3;
  constexpr double kLongEnough = 10, kLongerThanLoads = 3600;
  OpenedTime& opened = opened_time();
  for (int failures = 1;; ++failures) {
    const auto start = std::chrono::steady_clock::now();
    opened.clear();
    const int status =
        run_on_ranks(options.model, [&](const ModelOptions& model, const dist::World& world) {
          return serve_on_ranks(model, world, options);
        });
    // Ranks that are lost while they load, however long that takes, will be lost again.
    const bool has_served = opened.seconds_since() > kLongEnough;
    if (has_served || core::seconds_since(start) > kLongerThanLoads) failures = 1;
    if (status != kRankLost || !options.restarts || failures == kMostFailures) return status;
    std::fprintf(stderr, "weft serve: starting the ranks again\n");
  }
}

}  // namespace weft::cli
