#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "weft/core/files/file.h"

namespace weft::dist {

/// Start of process `pid` in clock ticks since boot; 0 if there is none. A process id is used
/// again, an id with its start time is not. Source: proc(5), field 22 of /proc/PID/stat.
uint64_t process_start_time(pid_t pid);

/// True if a signal has stopped process `pid`, which does nothing until SIGCONT. Source: proc(5),
/// state T.
bool is_stopped(pid_t pid);

/// The nearest ancestor of this process whose name is `name` (at most 15 bytes, as in
/// /proc/PID/comm); 0 if there is none.
pid_t find_ancestor(std::string_view name);

/// What another process of this user has as its descriptor `number`, opened anew, if that is file
/// `inode` of `device`; not open otherwise. Elsewhere `pid` may be another process's, whose
/// terminal or device must not be opened.
core::FileDescriptor open_descriptor_of(pid_t pid, int number, uint64_t device, uint64_t inode);

/// This machine's name: WEFT_HOST, or what the system says. Ranks of one name share memory.
std::string host_name();

/// 16 hexadecimal digits that stand for `text` (64-bit FNV-1a), fit for names of files.
std::string short_hash(std::string_view text);

/// Name of a signal as people write it: "SIGKILL"; "signal 35" where it has none.
std::string signal_name(int signal_number);

/// How many processors this process may use.
int available_cpus();

}  // namespace weft::dist
