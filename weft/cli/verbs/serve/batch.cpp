#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "weft/cli/model/adapter.h"
#include "weft/cli/model/session.h"
#include "weft/cli/output.h"
#include "weft/cli/streams.h"
#include "weft/cli/verbs/run.h"
#include "weft/cli/verbs/serve/served.h"
#include "weft/core/files/atomic_file.h"
#include "weft/core/files/file.h"
#include "weft/core/files/line_file.h"
#include "weft/dist/rendezvous/rank_info.h"
#include "weft/serve/batch/batch_file.h"
#include "weft/serve/batch/batch_run.h"
#include "weft/serve/routes/service.h"

namespace weft::cli {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 30;

// Where answers go: a file that grows, or stdout.
class Answers {
 public:
  // Of a file that is gone on with, whole answers stay.
  explicit Answers(const BatchVerbOptions& options) : path_(options.out) {
    if (options.resumes && std::filesystem::exists(path_)) {
      kept_ = serve::read_answered(core::read_text_file(path_, kMostBytes), path_);
    }
  }

  std::set<std::string> ids() const { return {kept_.ids.begin(), kept_.ids.end()}; }
  bool is_file() const { return !path_.empty(); }

  // Once there is a model that answers: only then what is to be replaced goes.
  void begin() {
    const std::string lines = std::exchange(kept_, {}).lines;
    if (!is_file()) return;
    core::write_file_atomically(path_, lines);
    file_.emplace(path_);
  }

  // False once nobody reads them.
  bool add(const std::string& line) {
    if (!file_) return TextOutput().write(line);
    file_->append(line);
    return true;
  }

 private:
  std::string path_;
  serve::BatchAnswered kept_;
  std::optional<core::LineFile> file_;
};

std::vector<serve::BatchRequest> read_requests(const BatchVerbOptions& options) {
  const bool is_stdin = options.requests == "-";
  const std::string text =
      is_stdin ? read_stdin() : core::read_text_file(options.requests, kMostBytes);
  // No context has so many: it is full before.
  const int64_t most = options.max_tokens < 0 ? INT32_MAX : options.max_tokens;
  serve::BatchDefaults defaults{most, options.temperature, std::nullopt};
  if (options.seed >= 0) defaults.seed = options.seed;
  return serve::read_batch(text, is_stdin ? "stdin" : options.requests, defaults);
}

// The requests, who asks them, and where answers go.
class AskedBatch : public ServedFront {
 public:
  AskedBatch(const BatchVerbOptions& options, std::vector<serve::BatchRequest> requests)
      : requests_(std::move(requests)),
        num_at_once_(2 * static_cast<size_t>(options.slots)),
        num_all_(requests_.size()),
        answers_(options) {
    std::erase_if(requests_, [ids = answers_.ids()](const serve::BatchRequest& request) {
      return ids.contains(request.id);
    });
    num_kept_ = num_all_ - requests_.size();
  }

  // The steps end when all is answered. After a signal, or an answer that can't be written, what
  // runs is ended as well.
  void before_step() override {
    if (caught_signal() != 0 || has_failed_) {
      run_->stop();
      scheduler()->end_all("the batch was interrupted");
    }
    if (run_->is_done()) scheduler()->drain();
  }

  void fail(const std::string& reason) override {
    service_.set_fault(reason);
    if (run_ == nullptr) return;
    is_lost_ = true;
    run_->stop();
    scheduler()->drain();
    scheduler()->end_all(reason);
    run_.reset();
    say_how_many();
  }

  // Throws what kept answers from being written.
  void finish() override {
    run_.reset();
    say_how_many();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void open_model(serve::ServedModel model) override {
    answers_.begin();
    service_.open(std::move(model));
    run_ = std::make_unique<serve::BatchRun>(
        std::move(requests_), num_at_once_,
        [this](const auto& request, const auto& reply) { service_.handle(request, reply); },
        [this](const auto& request, const auto& answer) { tell(request, answer); });
  }

  void tell(const serve::BatchRequest& request, const serve::HttpAnswer& answer) {
    // What was ended before it was answered is asked again by --resume, and what comes after it, so
    // that answers stay in order.
    ends_ = ends_ || has_failed_ || (answer.status >= 500 && (is_lost_ || caught_signal() != 0));
    if (ends_) return;
    try {
      has_failed_ = !answers_.add(serve::batch_line(request.id, num_told_ + num_kept_ + 1, answer));
      if (has_failed_) return;
      ++num_told_;
      if (answer.status == 200) ++num_right_;
    } catch (...) {
      error_ = std::current_exception();
      has_failed_ = true;
    }
  }

  void say_how_many() const {
    std::fprintf(
        stderr, "weft batch: %zu of %zu requests answered, %zu refused%s\n", num_kept_ + num_right_,
        num_all_, num_told_ - num_right_,
        answers_.is_file() && num_kept_ + num_told_ < num_all_ ? "; --resume asks the rest" : "");
  }

  std::vector<serve::BatchRequest> requests_;
  // Twice as many as run, so that a slot that gets free has a request at once.
  size_t num_at_once_;
  size_t num_all_, num_kept_ = 0;
  // Of the run's thread; read here once it has ended.
  size_t num_told_ = 0, num_right_ = 0;
  std::exception_ptr error_;
  bool ends_ = false;
  /// An answer can't be written; a rank is gone.
  std::atomic<bool> has_failed_ = false, is_lost_ = false;
  Answers answers_;
  serve::Service service_{serve::AccessOptions{{}, {}, false}, false, false, num_at_once_};
  // Ends first: its thread uses the others.
  std::unique_ptr<serve::BatchRun> run_;
};

}  // namespace

int run_batch(const BatchVerbOptions& options) {
  if (!options.out.empty()) {
    Inputs inputs = model_inputs(options.model, base_path(options.model));
    if (options.requests != "-") inputs.push_back(options.requests);
    check_new_file(options.out, options.force || options.resumes, inputs);
  }
  // What is no request is told before any rank is started; stdin goes to rank 0 alone.
  std::vector<serve::BatchRequest> requests;
  const bool is_stdin = options.requests == "-";
  if (!is_stdin && dist::rank_info_from_env().rank == 0) requests = read_requests(options);
  return run_on_ranks(options.model, [&](const ModelOptions& model, const dist::World& world) {
    return run_served(options, model, world, [&] {
      if (is_stdin) requests = read_requests(options);
      return std::make_unique<AskedBatch>(options, std::move(requests));
    });
  });
}

}  // namespace weft::cli
