#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace weft::core {

/// What a part of the program took, all its runs together.
struct ProfiledPart {
  std::string name;
  int64_t runs = 0;
  double seconds = 0;
};

/// Starts or stops measuring parts of this process; earlier measurements are dropped when it
/// begins. Off at first. The parts of one thread are measured: the one that calls this.
void set_profiling(bool is_on);
/// The parts in the order of their first runs. Parts within another are not part of its time.
std::vector<ProfiledPart> profiled_parts();

/// Measures from here to the end of its scope, if the profile is on; else it costs a branch.
class Profiled {
 public:
  /// `name` has to stay: a literal.
  explicit Profiled(const char* name);
  Profiled(const Profiled&) = delete;
  Profiled& operator=(const Profiled&) = delete;
  ~Profiled();

 private:
  using Clock = std::chrono::steady_clock;
  const char* name_ = nullptr;
  Clock::time_point start_;
  // Of parts within this one.
  Clock::duration inner_{};
  Profiled* outer_ = nullptr;
};

}  // namespace weft::core
