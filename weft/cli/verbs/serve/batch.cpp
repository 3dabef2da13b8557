#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "weft/cli/model/adapter.h"
#include "weft/cli/model/session.h"
#include "weft/cli/output.h"
#include "weft/cli/streams.h"
#include "weft/cli/verbs/run.h"
#include "weft/cli/verbs/serve/served.h"
#include "weft/core/error.h"
#include "weft/core/files/atomic_file.h"
#include "weft/core/files/file.h"
#include "weft/core/files/line_file.h"
#include "weft/dist/rendezvous/rank_info.h"
#include "weft/models/config/sources.h"
#include "weft/serve/batch/batch_file.h"
#include "weft/serve/batch/batch_run.h"
#include "weft/serve/engine/run_steps.h"
#include "weft/serve/routes/service.h"

namespace weft::cli {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 30;

// Where answers go: a file that grows, or stdout.
class Answers {
 public:
  // Of a file that is there, whole answers stay; returns their requests' ids.
  std::set<std::string> open(const BatchVerbOptions& options) {
    std::set<std::string> ids;
    if (options.out.empty()) return ids;
    serve::BatchAnswered kept;
    if (options.resumes && std::filesystem::exists(options.out)) {
      kept = serve::read_answered(core::read_text_file(options.out, kMostBytes), options.out);
    }
    core::AtomicFile file(options.out, kept.lines.size());
    file.write(std::as_bytes(std::span(kept.lines)));
    file.commit();
    file_.emplace(options.out);
    return {kept.ids.begin(), kept.ids.end()};
  }

  // False once nobody reads them.
  bool add(const std::string& line) {
    if (!file_) return TextOutput().write(line);
    file_->append(line);
    return true;
  }

 private:
  std::optional<core::LineFile> file_;
};

std::vector<serve::BatchRequest> read_requests(const BatchVerbOptions& options) {
  const bool is_stdin = options.requests == "-";
  const std::string text =
      is_stdin ? read_stdin() : core::read_text_file(options.requests, kMostBytes);
  serve::BatchDefaults defaults{options.max_tokens, options.temperature, std::nullopt};
  if (options.seed >= 0) defaults.seed = options.seed;
  return serve::read_batch(text, is_stdin ? "stdin" : options.requests, defaults);
}

// What rank 0 alone has: the requests, who asks them, and where answers go.
class AskedBatch {
 public:
  AskedBatch(const BatchVerbOptions& options, std::vector<serve::BatchRequest> requests)
      : requests_(std::move(requests)), slots_(static_cast<size_t>(options.slots)) {
    num_all_ = requests_.size();
    const std::set<std::string> answered = answers_.open(options);
    std::erase_if(requests_, [&](const auto& request) { return answered.contains(request.id); });
    num_kept_ = num_all_ - requests_.size();
  }

  void open(const BatchVerbOptions& options, const Session& session,
            const serve::SchedulerOptions& scheduler) {
    scheduler_ =
        std::make_unique<serve::Scheduler>(scheduler, models::load_tokenizer(*session.file));
    service_.open(served_model(options, session, *scheduler_));
    // Twice as many as run, so that a slot that gets free has a request at once.
    run_ = std::make_unique<serve::BatchRun>(
        std::move(requests_), 2 * slots_,
        [this](const auto& request, const auto& reply) { service_.handle(request, reply); },
        [this](const auto& request, const auto& answer) { tell(request, answer); });
  }

  serve::Scheduler* scheduler() { return scheduler_.get(); }

  // Called before each step: the steps end when all is answered. After a signal, or an answer that
  // can't be written, what runs is ended as well.
  void look() {
    if (caught_signal() != 0 || has_failed_) {
      run_->stop();
      scheduler_->end_all("the batch was interrupted");
    }
    if (run_->is_done()) scheduler_->drain();
  }

  void fail(const std::string& reason) {
    service_.set_fault(reason);
    if (run_ == nullptr) return;
    is_lost_ = true;
    run_->stop();
    scheduler_->drain();
    scheduler_->end_all(reason);
    run_.reset();
    say_how_many();
  }

  // Throws what kept answers from being written.
  void finish() {
    run_.reset();
    say_how_many();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void tell(const serve::BatchRequest& request, const serve::HttpAnswer& answer) {
    // What was ended before it was answered is asked again by --resume, and what comes after it, so
    // that answers stay in order.
    ends_ = ends_ || has_failed_ || (answer.status >= 500 && (is_lost_ || caught_signal() != 0));
    if (ends_) return;
    try {
      has_failed_ = !answers_.add(serve::batch_line(request.id, ++num_told_ + num_kept_, answer));
      if (answer.status == 200) ++num_right_;
    } catch (...) {
      error_ = std::current_exception();
      has_failed_ = true;
    }
  }

  void say_how_many() const {
    std::fprintf(stderr, "weft batch: %zu of %zu requests answered, %zu refused%s\n",
                 num_kept_ + num_right_, num_all_, num_told_ - num_right_,
                 num_kept_ + num_told_ < num_all_ ? "; --resume asks the rest" : "");
  }

  std::vector<serve::BatchRequest> requests_;
  size_t slots_, num_all_ = 0, num_kept_ = 0;
  // Of the run's thread; read here once it has ended.
  size_t num_told_ = 0, num_right_ = 0;
  std::exception_ptr error_;
  bool ends_ = false;
  /// An answer can't be written; a rank is gone.
  std::atomic<bool> has_failed_ = false, is_lost_ = false;
  Answers answers_;
  std::unique_ptr<serve::Scheduler> scheduler_;
  serve::Service service_{serve::AccessOptions{{}, {}, false}, false, false};
  // Ends first: its thread uses the others.
  std::unique_ptr<serve::BatchRun> run_;
};

int batch_on_ranks(const ModelOptions& model, const dist::World& world,
                   const BatchVerbOptions& options, std::vector<serve::BatchRequest> requests) {
  watch_interrupt();
  watch_termination();
  std::optional<AskedBatch> batch;
  if (world.rank() == 0) batch.emplace(options, std::move(requests));
  try {
    const Session session = open_session(model, world);
    serve::SchedulerOptions scheduler = scheduler_options(options, session);
    serve::StepRunner runner(session.loaded.model, scheduler.context, scheduler.slots);
    scheduler.prefix = prefix_options(options, session, runner);
    if (batch) batch->open(options, session, scheduler);
    serve::run_steps(runner, batch ? batch->scheduler() : nullptr, scheduler,
                     [&] { batch->look(); });
  } catch (const std::exception& error) {
    if (batch) batch->fail(error.what());
    throw;
  }
  if (batch) batch->finish();
  return caught_signal() == 0 ? 0 : 128 + caught_signal();
}

}  // namespace

int run_batch(const BatchVerbOptions& options) {
  if (!options.out.empty()) {
    const std::string requests = options.requests == "-" ? "" : options.requests;
    check_new_file(
        options.out, options.force || options.resumes,
        {base_path(options.model), options.model.adapter, options.model.shard_info, requests});
  }
  // What is no request is told before any rank is started; stdin goes to rank 0 alone.
  std::vector<serve::BatchRequest> requests;
  const bool is_stdin = options.requests == "-";
  if (!is_stdin && dist::rank_info_from_env().rank == 0) requests = read_requests(options);
  return run_on_ranks(options.model, [&](const ModelOptions& model, const dist::World& world) {
    if (is_stdin && world.rank() == 0) requests = read_requests(options);
    return batch_on_ranks(model, world, options, std::move(requests));
  });
}

}  // namespace weft::cli
