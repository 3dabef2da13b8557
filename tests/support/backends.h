#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace weft::test {

/// What WEFT_REQUIRE holds; empty if it is not set.
std::string required_text();

/// The backends that WEFT_REQUIRE's text names, e.g. "shm,gloo,mpi". Throws ConfigError for a name
/// that no build of weft has.
std::vector<std::string> required_backends(std::string_view text);

/// Why tests of `backend` cannot run in this build; empty if they can.
std::string reason_to_skip(const std::string& backend);

/// What must become of the tests of a backend that cannot run for `reason`: empty to skip them, or
/// the line with which they fail because `required` (WEFT_REQUIRE's text) names it.
std::string required_failure(const std::string& backend, const std::string& reason,
                             std::string_view required);

/// For a SetUp: skips the test where this build lacks `backend`, or fails it if WEFT_REQUIRE names
/// the backend.
void skip_or_fail_without(const std::string& backend);

/// A test that runs once for each backend for CPU tensors, GetParam(). Where this build lacks it
/// the test is skipped, or fails if WEFT_REQUIRE names it.
class OnEachBackend : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override;
};

inline const auto kEachBackend = ::testing::Values("shm", "gloo", "mpi", "hierarchical");

/// Names the tests after their backend.
std::string backend_of(const ::testing::TestParamInfo<std::string>& info);

}  // namespace weft::test
