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
#include "tests/serve/certificates.h"

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

TEST(Serve, AnswersByHttps) {
  const serve::test::Certificates certificates;
  const std::string keys = certificates.write("keys", "secret\n"), port = free_port();
  test::CommandOptions options = with_model();
  options.timeout = std::chrono::minutes(5);
  test::BackgroundCommand server(
      weft_command({"serve", "--tp", "2", "--port", port, "--alias", "model", "--api-key-file",
                    keys, "--ssl-cert-file", certificates.chain(), "--ssl-key-file",
                    certificates.key()}),
      options);
  ASSERT_TRUE(server.wait_for_output("weft serve: model on https://127.0.0.1:" + port + "/v1"));
  const auto client = test::run_command(
      {"python3", WEFT_SOURCE_DIR "/tests/serve/client.py", port, "secret", certificates.root()},
      options);
  EXPECT_EQ(client.out, "answered\n") << client.err;
  const auto load = [&](const std::vector<std::string>& more) {
    const std::vector<std::string> command = {"python3",    WEFT_SOURCE_DIR "/bench/serve/load.py",
                                              "--url",      "https://127.0.0.1:" + port + "/v1",
                                              "--key",      "secret",
                                              "--clients",  "2",
                                              "--requests", "3",
                                              "--tokens",   "5",
                                              "--json"};
    return test::run_command(joined(command, more));
  };
  const auto trusting = load({"--ssl-ca-file", certificates.root()});
  EXPECT_NE(trusting.out.find("\"tokens\": 15"), std::string::npos) << trusting.err;
  // Nothing on this machine trusts the test's certificates.
  const auto careful = load({});
  EXPECT_EQ(careful.status, 1);
  EXPECT_NE(careful.err.find("certificate verify failed"), std::string::npos) << careful.err;
  EXPECT_EQ(num_lines(careful.err), 1) << careful.err;
  server.signal(SIGTERM);
  const test::CommandResult result = server.finish();
  EXPECT_EQ(result.status, 143) << result.err;
  // The client's reason may be lost when it closes the connection.
  EXPECT_NE(result.err.find("serve: no TLS session: "), std::string::npos) << result.err;
}

TEST(Serve, RefusesWrongCertificatesInOneLine) {
  const serve::test::Certificates certificates;
  const auto refusal = [&](const char* ranks, const std::vector<std::string>& flags, int status) {
    const test::CommandResult result =
        weft(joined({"serve", "--tp", ranks, "--port", "0", "--alias", "model"}, flags));
    EXPECT_EQ(result.status, status) << result.err;
    return result.err;
  };
  const auto refused = [&](const std::vector<std::string>& flags, int status,
                           const std::string& line) {
    EXPECT_EQ(refusal("1", flags, status), "weft: " + line + "\n");
    // Flags are wrong before there are ranks; the files are for rank 0.
    const std::string rank = flags.size() == 2 ? "" : "[0] ";
    EXPECT_EQ(refusal("2", flags, status), rank + "weft: " + line + "\n");
  };
  const std::string chain = certificates.chain(), key = certificates.key();
  refused({"--ssl-cert-file", chain}, 2,
          "ConfigError: --ssl-cert-file: without --ssl-key-file, expected both; give the other "
          "one, too");
  refused({"--ssl-key-file", key}, 2,
          "ConfigError: --ssl-key-file: without --ssl-cert-file, expected both; give the other "
          "one, too");
  refused({"--ssl-cert-file", "none.pem", "--ssl-key-file", key}, 3,
          "FormatError: none.pem: no such file; check the path");
  refused({"--ssl-certfile", chain, "--ssl-keyfile", certificates.at("root.key")}, 2,
          "ConfigError: " + certificates.at("root.key") +
              ": not the key of the first certificate in " + chain +
              "; give the two that belong together");
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
