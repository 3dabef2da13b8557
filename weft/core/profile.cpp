#include "weft/core/profile.h"

#include <algorithm>

namespace weft::core {
namespace {

struct Profile {
  bool is_on = false;
  std::vector<ProfiledPart> parts;
};

// A thread's own: other threads see one that is off.
thread_local Profile profile;
thread_local Profiled* innermost = nullptr;

ProfiledPart& part_of(const char* name) {
  const auto found =
      std::ranges::find_if(profile.parts, [&](const auto& part) { return part.name == name; });
  if (found != profile.parts.end()) return *found;
  return profile.parts.emplace_back(ProfiledPart{name, 0, 0});
}

}  // namespace

void set_profiling(bool is_on) {
  if (is_on) profile.parts.clear();
  profile.is_on = is_on;
}

std::vector<ProfiledPart> profiled_parts() { return profile.parts; }

Profiled::Profiled(const char* name) {
  if (!profile.is_on) return;
  name_ = name;
  outer_ = innermost;
  innermost = this;
  start_ = Clock::now();
}

Profiled::~Profiled() {
  if (name_ == nullptr) return;
  const Clock::duration whole = Clock::now() - start_;
  if (outer_ != nullptr) outer_->inner_ += whole;
  innermost = outer_;
  ProfiledPart& part = part_of(name_);
  ++part.runs;
  part.seconds += std::chrono::duration<double>(whole - inner_).count();
}

}  // namespace weft::core
