#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/core/files/file.h"
#include "weft/dist/launch/launch_output.h"

namespace weft::dist {

/// The command that starts a job's launcher on each host, and what each reads first.
struct RemoteLaunch {
  /// One per host, the first for host 0.
  std::vector<std::vector<std::string>> commands;
  /// Written to each one's stdin before all else, e.g. the job's key, which must not stand in a
  /// command line.
  std::string first_line;
  /// Which of the commands run on other hosts: 0 or 1 for each. Those end when their stdin does; a
  /// signal would reach only what connects this process to them. If the first is one of them, it
  /// gets this process's stdin in pieces, as RelayedInput reads them.
  std::vector<char> is_remote;
};

/// Runs the commands, all at once. This process's stdin goes to the first; their output goes to
/// this one's, but for an error that an earlier one has said in the same words. Signals that ask
/// this process to end go to those on this host, and to all when they come again; the stdin of the
/// others is closed (one that does not take what it was given gets the signal, too). So it is when
/// this process ends, however it does. Returns the status of the first that fails, 0 if none does.
/// Throws IoError if a command cannot be started. Call before any other thread is started.
int launch_remotely(const RemoteLaunch& launch);

/// Rank 0's stdin where its launcher was started from another host. Both come through the
/// launcher's stdin, which must tell the end of rank 0's input from that of the command there: each
/// piece is its length, a newline and so many bytes, and a piece of no bytes ends rank 0's input.
class RelayedInput {
 public:
  /// One, if kLifelineVariable says "input"; else null. Throws IoError.
  static std::unique_ptr<RelayedInput> from_env();

  /// `bytes` as a piece; none for the end.
  static std::string piece_of(std::string_view bytes);

  /// Makes the pipe to rank 0. Throws IoError.
  RelayedInput();
  /// What rank 0 reads.
  int reader() const { return reader_.get(); }
  /// To be called once rank 0 has it.
  void close_reader() { reader_.reset(); }
  /// Takes what came, which may end within a piece.
  void feed(std::string_view bytes);
  /// What is to be polled for writing; -1: nothing is left to write.
  int writer() const { return sink_.has_pending() ? writer_.get() : -1; }
  /// True if no more should be read for now.
  bool is_full() const { return sink_.is_full(); }
  /// Writes some; call when poll says that writer() takes it.
  void write_some();

 private:
  void close_if_done();

  core::FileDescriptor reader_;
  core::FileDescriptor writer_;
  OutputSink sink_{-1};
  /// Digits of a length that has not come whole, and what is left of the piece after it.
  std::string length_;
  size_t left_ = 0;
  bool has_all_ = false;
};

}  // namespace weft::dist
