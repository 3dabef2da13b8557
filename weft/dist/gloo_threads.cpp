#include "weft/dist/gloo_threads.h"

#include <cxxabi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <typeinfo>

#include "weft/core/error.h"
#include "weft/dist/group_monitor.h"
#include "weft/dist/launch/status_page.h"

namespace weft::dist {
namespace {

std::terminate_handler handler_before = nullptr;

// By name: libtorch has Gloo's types within it and no symbols of them.
bool is_thrown_by_gloo() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  return type != nullptr && std::string_view(type->name()).starts_with("N4gloo");
}

// Without the place in Gloo's sources: "[enforce fail at FILE:LINE] … 8 vs 4. Received data size …"
std::string text_of_current() {
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::exception& error) {
    const std::string line = first_line(error.what());
    const size_t end = line.find("] ");
    return end == std::string::npos ? line : line.substr(end + 2);
  }
}

[[noreturn]] void end_process() {
  if (is_thrown_by_gloo()) {
    const core::CommError error(core::join(
        "dist.Group: ", describe_operation(own_status()), ": Gloo cannot go on (",
        text_of_current(),
        "); all ranks must make the same calls in the same order, and WEFT_CHECK_COLLECTIVES=1 "
        "names those that differ"));
    const std::string line = core::join("weft: ", error.type(), ": ", error.what());
    if (should_report(line)) std::fprintf(stderr, "%s\n", line.c_str());
    _exit(error.exit_code());
  }
  if (handler_before != nullptr) handler_before();
  std::abort();
}

}  // namespace

void explain_ends_of_gloo_threads() {
  static std::once_flag once;
  std::call_once(once, [] { handler_before = std::set_terminate(end_process); });
}

}  // namespace weft::dist
