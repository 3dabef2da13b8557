#pragma once

#include <functional>
#include <memory>
#include <string>

#include "weft/cli/model/session.h"
#include "weft/cli/options.h"
#include "weft/serve/api/served_model.h"
#include "weft/serve/engine/scheduler.h"

namespace weft::cli {

/// What rank 0 alone has: who asks a model that is cut over ranks, and who is told its answers.
class ServedFront {
 public:
  ServedFront() = default;
  ServedFront(const ServedFront&) = delete;
  ServedFront& operator=(const ServedFront&) = delete;
  virtual ~ServedFront() = default;

  /// The model is there, and what decides for it what is done.
  void open(const ServedOptions& options, const Session& session,
            const serve::SchedulerOptions& scheduler);
  serve::Scheduler* scheduler() { return scheduler_.get(); }

  /// Called before each step; once the scheduler has been drained, the steps end.
  virtual void before_step() = 0;
  /// The steps have ended by themselves, or by an exception, which may have come before open().
  virtual void finish() = 0;
  virtual void fail(const std::string& reason) = 0;

 protected:
  virtual void open_model(serve::ServedModel model) = 0;

 private:
  std::unique_ptr<serve::Scheduler> scheduler_;
};

/// Loads the model and runs steps until the front that `make_front` gives, on rank 0 alone, ends
/// them. Collective. Returns the exit code. Throws as open_session and run_steps, and ConfigError
/// for a prefix cache that holds no page.
int run_served(const ServedOptions& options, const ModelOptions& model, const dist::World& world,
               const std::function<std::unique_ptr<ServedFront>()>& make_front);

}  // namespace weft::cli
