#include "weft/dist/store/health_board.h"

#include <algorithm>

#include "weft/core/error.h"

namespace weft::dist {

using namespace std::chrono_literals;

std::string silence_between(const std::string& a, const std::string& b,
                            std::chrono::milliseconds limit) {
  return core::join("hosts ", std::min(a, b), " and ", std::max(a, b),
                    " have not heard from each other for ", limit / 1s,
                    " s: one of them is cut off, stopped or stuck");
}

HealthBoard::HealthBoard(std::string own_host, std::chrono::milliseconds limit)
    : own_host_(std::move(own_host)), limit_(limit) {}

void HealthBoard::beat(const HealthReport& report) {
  Member& member = members_[report.rank];
  member.report = report;
  member.silent = 0ms;
}

void HealthBoard::end(int rank) {
  Member& member = members_[rank];
  if (!member.ended) ++version_;
  member.ended = true;
}

void HealthBoard::leave(int rank) { end(rank); }

void HealthBoard::lose(int rank) {
  const auto found = members_.find(rank);
  if (found == members_.end() || found->second.ended) return;
  end(rank);
  propose(core::join(found->second.report.name, " was killed or has ended",
                     found->second.report.doing));
}

void HealthBoard::propose(const std::string& verdict) {
  if (!verdict_.empty() || verdict.empty()) return;
  verdict_ = verdict;
  ++version_;
}

bool HealthBoard::is_silent_host(const std::string& host) const {
  return host != own_host_ && std::all_of(members_.begin(), members_.end(), [&](const auto& entry) {
           const Member& member = entry.second;
           return member.ended || member.report.host != host || member.silent >= limit_;
         });
}

void HealthBoard::pass(std::chrono::milliseconds time) {
  if (limit_ == std::chrono::milliseconds::max()) return;
  for (auto& [rank, member] : members_) {
    if (!member.ended) member.silent += time;
  }
  for (const auto& [rank, member] : members_) {
    if (member.ended || member.silent < limit_ + kSettle) continue;
    const HealthReport& report = member.report;
    propose(is_silent_host(report.host)
                ? silence_between(own_host_, report.host, limit_)
                : core::join(report.name, " has not answered for ", limit_ / 1s,
                             " s: stopped or stuck", report.doing));
  }
}

std::vector<int> HealthBoard::ended() const {
  std::vector<int> ranks;
  for (const auto& [rank, member] : members_) {
    if (member.ended) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace weft::dist
