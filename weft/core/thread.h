#pragma once

#include <functional>
#include <string>
#include <thread>

namespace weft::core {

/// A thread that runs `body` and gets no signals: those are for the program's own threads. Throws
/// IoError, beginning with `where`, if the system allows no further one.
std::thread start_thread(const std::string& where, std::function<void()> body);

/// Throws IoError, beginning with `where`, unless this process may have so many further threads.
/// For libraries that hang or end the program where they can't start theirs.
void check_can_start_threads(const std::string& where, int count);

}  // namespace weft::core
