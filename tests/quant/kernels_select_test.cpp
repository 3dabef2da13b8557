#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <set>
#include <string>

#include "tests/quant/quant_cases.h"
#include "weft/core/error.h"
#include "weft/quant/kernels/select.h"

namespace weft::quant::kernels {
namespace {

TEST(SelectKernel, FindsEveryKernelThatRunsByName) {
  for (const Kernel* kernel : all_kernels()) {
    if (!kernel->runs_here()) continue;
    EXPECT_EQ(&select_kernel(kernel->name), kernel);
  }
}

TEST(SelectKernel, TakesTheFirstThatRuns) {
  for (const Kernel* kernel : all_kernels()) {
    if (!kernel->runs_here()) continue;
    EXPECT_EQ(&select_kernel(""), kernel);
    return;
  }
  FAIL() << "no kernel runs here";
}

TEST(SelectKernel, AlwaysHasThePlainOneLast) {
  EXPECT_STREQ(all_kernels().back()->name, "plain");
  EXPECT_TRUE(all_kernels().back()->runs_here());
}

TEST(SelectKernel, NamesAreDifferent) {
  std::set<std::string> names;
  for (const Kernel* kernel : all_kernels()) names.insert(kernel->name);
  EXPECT_EQ(names.size(), all_kernels().size());
}

TEST(SelectKernel, RefusesUnknownNamesAndListsTheKnown) {
  const auto message = quant::test::message_of<core::ConfigError>([] { select_kernel("sse9"); });
  EXPECT_EQ(message.find("quant.kernels: WEFT_CPU_KERNEL, expected one of "), 0U) << message;
  EXPECT_NE(message.find("plain, got \"sse9\"; correct or unset it"), std::string::npos) << message;
}

TEST(SelectKernel, RefusesWhatTheCpuCannotRun) {
  Kernel missing = *all_kernels().back();
  missing.name = "missing";
  missing.runs_here = [] { return false; };
  const Kernel* table[] = {&missing, all_kernels().back()};
  const auto message =
      quant::test::message_of<core::ConfigError>([&] { select_kernel_of(table, "missing"); });
  EXPECT_EQ(message,
            "quant.kernels: WEFT_CPU_KERNEL, expected one of plain, got \"missing\", which this "
            "CPU cannot run; choose another or unset it");
  EXPECT_STREQ(select_kernel_of(table, "").name, "plain");
}

/// Ends the process with what active_kernel gives when the environment asks for `name`.
void exit_with_kernel(const char* name) {
  setenv("WEFT_CPU_KERNEL", name, 1);
  try {
    std::cerr << "kernel " << active_kernel().name << "\n";
    std::exit(0);
  } catch (const core::ConfigError& error) {
    std::cerr << error.what() << "\n";
    std::exit(error.exit_code());
  }
}

TEST(ActiveKernelDeathTest, FollowsTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_with_kernel("plain"), ::testing::ExitedWithCode(0), "kernel plain");
  EXPECT_EXIT(exit_with_kernel("fast"), ::testing::ExitedWithCode(2),
              "got .fast.; correct or unset");
}

}  // namespace
}  // namespace weft::quant::kernels
