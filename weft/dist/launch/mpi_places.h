#pragma once

#include <signal.h>

#include <string>
#include <utility>
#include <vector>

#include "weft/core/files/file.h"

namespace weft::dist {

/// Places in a job of MPI for processes that weft's launcher starts itself. mpirun starts one
/// placeholder for each rank, which lends the rank its variables: by these the rank finds the other
/// ranks, whoever has started it. So the launcher remains the parent of all ranks, with their
/// output, signals and exit statuses. The placeholders end with this, or with this process.
class MpiPlaces {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;

  /// Throws IoError if mpirun cannot be started or refuses. `signal_mask` is mpirun's.
  MpiPlaces(int num_ranks, const sigset_t& signal_mask);
  MpiPlaces(const MpiPlaces&) = delete;
  MpiPlaces& operator=(const MpiPlaces&) = delete;
  ~MpiPlaces();

  /// What MPI wants rank `rank` to have in its environment.
  const Variables& variables(int rank) const { return variables_[static_cast<size_t>(rank)]; }

 private:
  void start(const sigset_t& signal_mask);
  void read_variables();
  bool has_ended() const;
  [[noreturn]] void fail_start() const;

  std::vector<core::FileDescriptor> readers_;
  std::vector<core::FileDescriptor> writers_;
  std::vector<Variables> variables_;
  // Placeholders wait until the writing end is closed.
  std::pair<core::FileDescriptor, core::FileDescriptor> stay_;
  core::FileDescriptor log_;
  pid_t pid_ = 0;
};

}  // namespace weft::dist
