#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/processes.h"
#include "tests/cli/weft_command.h"

namespace weft::cli {
namespace {

TEST(Serve, AnswersItsClientsOnAnyNumberOfRanksAndEndsWhenAsked) {
  const std::string keys = ::testing::TempDir() + "serve_keys";
  std::ofstream(keys) << "secret\n";
  // Three ranks on two cores take their time.
  test::CommandOptions options = with_model();
  options.timeout = std::chrono::minutes(5);
  for (const char* ranks : {"1", "2", "3"}) {
    const std::string port = free_port();
    test::BackgroundCommand server(weft_command({"serve", "--tp", ranks, "--port", port, "--alias",
                                                 "model", "--api-key-file", keys}),
                                   options);
    ASSERT_TRUE(server.wait_for_output("weft serve: model on http://127.0.0.1:" + port + "/v1"));
    const auto client = test::run_command(
        {"python3", WEFT_SOURCE_DIR "/tests/serve/client.py", port, "secret"}, options);
    EXPECT_EQ(client.out, "answered\n") << ranks << " ranks\n" << client.err;
    const auto load =
        test::run_command({"python3", WEFT_SOURCE_DIR "/bench/serve/load.py", "--url",
                           "http://127.0.0.1:" + port + "/v1", "--key", "secret", "--clients", "2",
                           "--requests", "3", "--tokens", "5", "--json"});
    EXPECT_NE(load.out.find("\"tokens\": 15"), std::string::npos) << load.out << load.err;
    server.signal(SIGTERM);
    const test::CommandResult result = server.finish();
    EXPECT_EQ(result.status, 143) << result.err;
    EXPECT_FALSE(result.timed_out);
  }
  std::filesystem::remove(keys);
}

TEST(Serve, ShowsAnyNameOnOneLineAndEndsAtAHangupOfOneRank) {
  test::CommandOptions options = with_model();
  // The name of this host is no address to listen on.
  options.variables.emplace_back("WEFT_HOST", "node7");
  test::BackgroundCommand server(
      weft_command({"serve", "--tp", "2", "--no-page", "--port", "0", "--alias", "a\nb\x1b[31m"}),
      options);
  ASSERT_TRUE(server.wait_for_output("weft serve: a\\x0ab\\x1b[31m on http://127.0.0.1:"));
  kill(ranks_of(server.pid()).at("1"), SIGHUP);
  const test::CommandResult result = server.finish();
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.status, 129) << result.err;
  EXPECT_EQ(num_lines(result.err), 1) << result.err;
}

// Asks until the server answers, for half a minute.
constexpr char kWaitForHealth[] = R"(
import sys, time, urllib.request
for _ in range(300):
    try:
        sys.exit(urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/health").status != 200)
    except OSError:
        time.sleep(0.1)
sys.exit(1)
)";

TEST(Serve, NamesALostRankToItsClientsAndStartsTheRanksAgain) {
  const std::string port = free_port();
  test::BackgroundCommand server(
      weft_command({"serve", "--tp", "2", "--port", port, "--alias", "model"}), with_model());
  ASSERT_TRUE(server.wait_for_output("weft serve: model on http://127.0.0.1:" + port));
  const auto ranks = ranks_of(server.pid());
  ASSERT_EQ(ranks.size(), 2U);
  const auto answer = [&](const std::string& tokens) {
    return std::vector<std::string>{"python3",    WEFT_SOURCE_DIR "/bench/serve/load.py",
                                    "--url",      "http://127.0.0.1:" + port + "/v1",
                                    "--clients",  "1",
                                    "--requests", "1",
                                    "--tokens",   tokens};
  };
  test::BackgroundCommand client(answer("3500"));
  // It streams by then.
  std::this_thread::sleep_for(std::chrono::seconds(2));
  ::kill(ranks.at("1"), SIGKILL);
  const test::CommandResult told = client.finish();
  EXPECT_EQ(told.status, 1);
  EXPECT_NE(told.err.find("rank 1 (pid " + std::to_string(ranks.at("1"))), std::string::npos)
      << told.err;
  ASSERT_TRUE(server.wait_for_output("weft serve: starting the ranks again"));
  EXPECT_EQ(test::run_command({"python3", "-c", kWaitForHealth, port}).status, 0);
  EXPECT_EQ(test::run_command(answer("5")).status, 0);
  server.signal(SIGTERM);
  const test::CommandResult result = server.finish();
  EXPECT_EQ(result.status, 143) << result.err;
}

TEST(Serve, RefusesToBeOpenWithoutKeys) {
  const test::CommandResult open = weft({"serve", "--host", "0.0.0.0"});
  EXPECT_EQ(open.status, 2);
  EXPECT_EQ(open.err,
            "weft: ConfigError: --host: 0.0.0.0 is open to other machines, expected "
            "--api-key-file with it; give one or listen on 127.0.0.1\n");
  const UsedPort used;
  const test::CommandResult taken = weft({"serve", "--port", used.text()});
  EXPECT_EQ(taken.status, 5);
  EXPECT_EQ(taken.err, "weft: IoError: serve: 127.0.0.1 port " + used.text() +
                           ": cannot listen: Address already in use; choose another port\n");
}

}  // namespace
}  // namespace weft::cli
