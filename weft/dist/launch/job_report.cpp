// What a job says at its end, here and to the launchers of other hosts.
#include <sys/wait.h>

#include <algorithm>
#include <thread>

#include "weft/core/error.h"
#include "weft/core/terminal/printable.h"
#include "weft/dist/launch/job.h"
#include "weft/dist/launch/process.h"
#include "weft/dist/rendezvous/limits.h"

namespace weft::dist {
namespace {

using namespace std::chrono_literals;

// A host notices its own dead rank, and tells it, well within this.
constexpr auto kReasonTime = 3s;

}  // namespace

// Before its end a rank has no wait status.
bool Job::has_exited(const Rank& rank) { return !rank.alive && WIFEXITED(rank.wait_status); }

bool Job::all_ended_alike() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [this](const Rank& rank) {
    return has_exited(rank) && rank.wait_status == ranks_[0].wait_status;
  });
}

std::string Job::name_of(int rank) const {
  return core::join("rank ", first_rank_ + rank, " (pid ", ranks_[static_cast<size_t>(rank)].pid,
                    ", host ", host_name(), ")");
}

// What the ranks said themselves. Complaints about another rank count only where nobody says more,
// and of those the first: who complains later may do so of one that has ended for its complaint.
// What all say is said once, what some say with their numbers.
std::string Job::last_words_of_ranks() const {
  std::vector<std::pair<int, std::string>> causes, complaints;
  const auto time_of = [this](const auto& said) { return status_of(said.first).error_time.load(); };
  for (int rank = 0; rank < options_.num_ranks; ++rank) {
    // Any program may have left them.
    const std::string words = core::printable(last_words(status_of(rank)));
    if (words.empty()) continue;
    const bool complains = words.find("CommError: ") != std::string::npos;
    (complains ? complaints : causes).emplace_back(rank, words);
  }
  auto& said = causes.empty() ? complaints : causes;
  const bool all_alike = std::all_of(said.begin(), said.end(), [&](const auto& each) {
    return each.second == said.front().second;
  });
  if (all_alike && static_cast<int>(said.size()) == options_.num_ranks) {
    return said.front().second + "\n";
  }
  if (causes.empty() && !said.empty()) {
    said = {*std::min_element(said.begin(), said.end(), [&](const auto& a, const auto& b) {
      return time_of(a) < time_of(b);
    })};
  }
  std::string text;
  for (const auto& [rank, words] : said)
    text += core::join("[", first_rank_ + rank, "] ", words, "\n");
  return text;
}

// Empty if there is nobody to name: all said the same by themselves.
std::string Job::report_text() const {
  const bool exited = has_exited(ranks_[static_cast<size_t>(failed_rank_)]);
  std::string text = exited ? last_words_of_ranks() : "";
  if (!text.empty() || (all_ended_alike() && !ended_by_us_)) return text;
  const char* type = status_ == kCommErrorStatus ? "CommError: " : "";
  const std::string line = core::join("weft launch: ", type, name_of(failed_rank_), " ", failure_,
                                      all_ranks_ > 1 ? "; the other ranks were ended" : "");
  return core::printable(line) + "\n";
}

void Job::report() {
  if (asked_signal_ != 0) {
    status_ = 128 + asked_signal_;
    return;
  }
  const bool failed_here = failed_rank_ >= 0 && !foreign_;
  std::string text;
  if (failed_here && !failure_.empty()) {
    text = told_ ? *told_ : report_text();
  } else if (!failed_here && foreign_) {
    status_ = foreign_->status;
    text = foreign_->text;
  }
  err_.add(core::printable_lines(text));
  err_.flush();
}

// What ended the job elsewhere ends it here.
void Job::follow_other_hosts() {
  if (!link_ || foreign_) return;
  foreign_ = link_->foreign_end();
  if (foreign_ && !terminate_at_ && !ended_by_us_) terminate_at_ = Clock::now();
}

void Job::tell_other_hosts() {
  if (!told_) told_ = report_text();
  link_->tell(status_, *told_);
}

// The ranks of this host have ended. Those that complain of others have the reason on another host,
// which is about to tell it. Where several hosts have one, all believe the first.
void Job::agree_on_cause() {
  const auto wait_unless = [&](auto&& is_known) {
    const auto begun = Clock::now();
    while (!foreign_ && !is_known() && asked_signal_ == 0 && Clock::now() - begun < kReasonTime) {
      std::this_thread::sleep_for(50ms);
      handle_signals();
      foreign_ = link_->foreign_end();
    }
  };
  if (failed_rank_ < 0) return;
  wait_unless([this] { return !cause_complains_; });
  if (foreign_) return;
  tell_other_hosts();
  wait_unless([this] { return link_->has_told(); });
}

// Host 0 serves the store until the others are done. A failure is told to hosts that are yet to
// come, too, for as long as the ranks would have waited for them; otherwise theirs would wait.
void Job::wait_for_other_hosts() {
  link_->leave();
  const auto deadline = std::max(started_ + start_timeout_from_env(), Clock::now() + kReasonTime);
  while (!link_->may_go() && asked_signal_ == 0 && (!has_failed() || Clock::now() < deadline)) {
    std::this_thread::sleep_for(20ms);
    handle_signals();
  }
  if (!foreign_ && !link_->has_told()) foreign_ = link_->foreign_end();
}

}  // namespace weft::dist
