#include "tests/support/backends.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "weft/core/error.h"
#include "weft/dist/backends/backends.h"

namespace weft::test {
namespace {

std::vector<std::string> known_names() {
  std::vector<std::string> names;
  for (const dist::BackendName& backend : dist::known_backends()) names.push_back(backend.name);
  return names;
}

}  // namespace

std::string required_text() {
  const char* text = std::getenv("WEFT_REQUIRE");
  return text == nullptr ? "" : text;
}

std::vector<std::string> required_backends(std::string_view text) {
  const std::vector<std::string> all = known_names();
  std::vector<std::string> names;
  std::istringstream words{std::string(text)};
  for (std::string name; std::getline(words, name, ',');) {
    const bool known = std::find(all.begin(), all.end(), name) != all.end();
    core::check<core::ConfigError>(known, "WEFT_REQUIRE: expected backends of ",
                                   core::list_text(all), " with a comma between, got '", name, "'");
    names.push_back(name);
  }
  return names;
}

std::string reason_to_skip(const std::string& backend) {
  const auto table = dist::backend_table();
  const bool there = std::any_of(table.begin(), table.end(),
                                 [&](const dist::BackendRow& row) { return backend == row.name; });
  return there ? "" : core::join("this build has no ", backend, " backend");
}

std::string required_failure(const std::string& backend, const std::string& reason,
                             std::string_view required) {
  const auto names = required_backends(required);
  if (reason.empty() || std::find(names.begin(), names.end(), backend) == names.end()) return {};
  return core::join("WEFT_REQUIRE names ", backend, ", but ", reason, "; build with it or take it ",
                    "from the list");
}

void skip_or_fail_without(const std::string& backend) {
  const std::string reason = reason_to_skip(backend);
  const std::string failure = required_failure(backend, reason, required_text());
  if (!failure.empty()) FAIL() << failure;
  if (!reason.empty()) GTEST_SKIP() << reason;
}

void OnEachBackend::SetUp() { skip_or_fail_without(GetParam()); }

std::string backend_of(const testing::TestParamInfo<std::string>& info) { return info.param; }

}  // namespace weft::test
