#pragma once

#include <string>

namespace weft::dist {

/// The key of the job that this process belongs to: WEFT_JOB_KEY, or the first line of the file
/// that WEFT_JOB_KEY_FILE names, if there is no WEFT_JOB_KEY; empty if neither is set. Throws
/// ConfigError if the key has fewer than 16 characters, IoError if the file cannot be read.
std::string job_key_from_env();

/// A new key that nobody can guess, as text.
std::string new_job_key();

/// Logs a warning where the store of several hosts has no key. `where`: its address and port. For
/// the process that serves it.
void warn_without_key(const std::string& key, const std::string& where);

}  // namespace weft::dist
