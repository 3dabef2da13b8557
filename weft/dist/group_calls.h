#pragma once

#include <exception>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "weft/core/error.h"
#include "weft/dist/check/call.h"
#include "weft/dist/check/call_checker.h"
#include "weft/dist/group.h"
#include "weft/dist/group_monitor.h"

// The frame that every operation of a Group runs in, for the files that implement them.

namespace weft::dist {

/// Waits for `work`, looking after the peers where there is a monitor.
inline void wait_for(GroupMonitor* monitor, OpKind kind,
                     const c10::intrusive_ptr<c10d::Work>& work) {
  if (monitor == nullptr) {
    work->wait();
  } else {
    monitor->wait(*work, kind);
  }
}

/// Runs one operation: noted in the status page, its errors turned into weft's.
template <class Function>
auto Group::run_operation(OpKind kind, Function&& function) const {
  if (monitor_ == nullptr) return function();
  monitor_->begin(kind);
  try {
    auto result = function();
    monitor_->end();
    return result;
  } catch (const core::CommError&) {
    abandon();
    throw;
  } catch (const core::Error&) {
    throw;
  } catch (const std::exception& error) {
    abandon();
    monitor_->explain(kind, error);
  }
}

/// The same for a collective: under check_collectives the ranks compare their calls first. Whatever
/// `function` runs is part of it and not compared again.
template <class Describe, class Function>
auto Group::run_collective(OpKind kind, Describe&& describe, Function&& function) const {
  if (checker_ == nullptr) return run_operation(kind, std::forward<Function>(function));
  return run_operation(kind, [&] {
    checker_->check_after_queue(describe());
    const CallChecker::PassScope parts;
    return function();
  });
}

}  // namespace weft::dist
