#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/processes.h"
#include "tests/cli/weft_command.h"
#include "tests/core/temp_dir.h"
#include "tests/serve/certificates.h"
#include "weft/core/files/file.h"

namespace weft::cli {
namespace {

using nlohmann::json;
using Strings = std::vector<std::string>;

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
    const json bench = weft_json({"bench", "--url", "http://localhost:" + port, "--api-key-file",
                                  keys, "--clients", "1,2", "--num-requests", "3", "-p", "20", "-n",
                                  "5", "--first-token-limit", "1e6", "--json"});
    EXPECT_EQ(bench["model"], "model");
    ASSERT_EQ(bench["runs"].size(), 2U);
    EXPECT_EQ(bench["runs"][1]["clients"], 2);
    EXPECT_EQ(bench["runs"][1]["tokens"], 15) << bench;
    EXPECT_EQ(bench["runs"][1]["goodput"]["answers"], 3) << bench;
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
  test::BackgroundCommand cut(answer("3500"));
  std::this_thread::sleep_for(std::chrono::seconds(2));
  server.signal(SIGTERM);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  server.signal(SIGTERM);
  const test::CommandResult half = cut.finish();
  EXPECT_EQ(half.status, 1);
  EXPECT_NE(half.err.find("the server was told to end at once"), std::string::npos) << half.err;
  const test::CommandResult result = server.finish();
  EXPECT_EQ(result.status, 143) << result.err;
}

// Its peers give it up; woken to end, it sees only that they have ended, and tells what they saw.
TEST(Serve, NamesTheFirstRankToItsClientsWhereThatWasStopped) {
  const std::string port = free_port();
  test::BackgroundCommand server(
      weft_command({"serve", "--tp", "2", "--port", port, "--alias", "model"}), with_model());
  ASSERT_TRUE(server.wait_for_output("weft serve: model on http://127.0.0.1:" + port));
  const int first = ranks_of(server.pid()).at("0");
  test::BackgroundCommand client({"python3", WEFT_SOURCE_DIR "/bench/serve/load.py", "--url",
                                  "http://127.0.0.1:" + port + "/v1", "--clients", "1",
                                  "--requests", "1", "--tokens", "3500"});
  // It streams by then.
  std::this_thread::sleep_for(std::chrono::seconds(2));
  ::kill(first, SIGSTOP);
  const test::CommandResult told = client.finish();
  EXPECT_NE(told.err.find("rank 0 (pid " + std::to_string(first)), std::string::npos) << told.err;
  EXPECT_NE(told.err.find("stopped or stuck"), std::string::npos) << told.err;
  ASSERT_TRUE(server.wait_for_output("weft serve: starting the ranks again"));
  EXPECT_EQ(test::run_command({"python3", "-c", kWaitForHealth, port}).status, 0);
  server.signal(SIGTERM);
  EXPECT_EQ(server.finish().status, 143);
}

// Asks until the server's health has this status, for half a minute, and prints the answer.
constexpr char kHealth[] = R"(
import sys, time, urllib.error, urllib.request
url = f"http://127.0.0.1:{sys.argv[1]}/health"
for _ in range(300):
    try:
        answer = urllib.request.urlopen(url, timeout=5)
        status, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    if status == int(sys.argv[2]):
        sys.exit(print(text.decode()))
    time.sleep(0.1)
sys.exit(1)
)";

// One thread of a process stands still while the others, and with them its heartbeat, go on.
class StoppedThread {
 public:
  explicit StoppedThread(int thread) : thread_(thread) {
    EXPECT_EQ(ptrace(PTRACE_SEIZE, thread_, nullptr, nullptr), 0) << strerror(errno);
    EXPECT_EQ(ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr), 0) << strerror(errno);
    int status = 0;
    EXPECT_EQ(waitpid(thread_, &status, __WALL), thread_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  StoppedThread(const StoppedThread&) = delete;
  StoppedThread& operator=(const StoppedThread&) = delete;
  ~StoppedThread() { EXPECT_EQ(ptrace(PTRACE_DETACH, thread_, nullptr, nullptr), 0); }

 private:
  int thread_;
};

TEST(Serve, NamesARankThatLivesAndGoesOnNoMore) {
  const std::string port = free_port();
  test::BackgroundCommand server(
      weft_command({"serve", "--tp", "3", "--port", port, "--alias", "model"}), with_model());
  ASSERT_TRUE(server.wait_for_output("weft serve: model on http://127.0.0.1:" + port));
  const auto health = [&](const char* status) {
    const test::CommandResult asked = test::run_command({"python3", "-c", kHealth, port, status});
    EXPECT_EQ(asked.status, 0) << "no " << status << " came";
    return asked.out;
  };
  health("200");
  const int rank = ranks_of(server.pid()).at("1");
  {
    const StoppedThread stopped(rank);
    const std::string told = health("503");
    const std::string stuck = "rank 1 (pid " + std::to_string(rank) + ") ";
    EXPECT_NE(told.find(" s: " + stuck), std::string::npos) << told;
    EXPECT_EQ(told.find("rank 0"), std::string::npos) << told;
    EXPECT_EQ(told.find("rank 2"), std::string::npos) << told;
  }
  health("200");
  server.signal(SIGTERM);
  EXPECT_EQ(server.finish().status, 143);
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
  const std::string url = "https://localhost:" + port + "/v1";
  const Strings bench = {"bench", "--url", url, "--api-key-file", keys, "--num-requests", "3", "-n",
                         "5",     "-p",    "9", "--rate",         "50", "--json"};
  EXPECT_EQ(weft_json(joined(bench, {"--ssl-ca-file", certificates.root()}))["runs"][0]["answers"],
            3);
  const test::CommandResult untrusted = weft(bench);
  EXPECT_EQ(untrusted.status, 5);
  EXPECT_TRUE(untrusted.err.starts_with("weft: IoError: load: " + url + ": no TLS session: "))
      << untrusted.err;
  server.signal(SIGTERM);
  const test::CommandResult result = server.finish();
  EXPECT_EQ(result.status, 143) << result.err;
  // The client's reason may be lost when it closes the connection.
  EXPECT_NE(result.err.find("serve: no TLS session: "), std::string::npos) << result.err;
}

TEST(BenchUrl, SaysWhatWasMeasuredUntilCtrlC) {
  const std::string port = free_port();
  test::BackgroundCommand server(weft_command({"serve", "--port", port, "--alias", "model"}),
                                 with_model());
  ASSERT_TRUE(server.wait_for_output("weft serve: model on http://127.0.0.1:" + port));
  test::BackgroundCommand bench(weft_command({"bench", "--url", "http://127.0.0.1:" + port, "-p",
                                              "4", "-n", "4", "--num-requests", "100000"}));
  std::this_thread::sleep_for(std::chrono::seconds(4));
  bench.signal(SIGINT);
  const test::CommandResult ended = bench.finish();
  EXPECT_EQ(ended.status, 130) << ended.err;
  EXPECT_NE(ended.out.find("clients 1: "), std::string::npos) << ended.out << ended.err;
  EXPECT_NE(ended.out.find("  between tokens ms  p50 "), std::string::npos) << ended.out;
  const weft::testing::TempDir dir;
  const Strings drawn = {"bench",
                         "--url",
                         "http://127.0.0.1:" + port,
                         "-p",
                         "4",
                         "-n",
                         "4",
                         "-o",
                         dir.at("load.svg"),
                         "--rate",
                         "50,100",
                         "--num-requests",
                         "4",
                         "--first-token-limit",
                         "5000"};
  const auto first = weft(drawn);
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_NE(first.out.find("rate 100 requests/s: 4 answers"), std::string::npos) << first.out;
  const std::string chart = core::read_text_file(dir.at("load.svg"), 1 << 20);
  for (const char* words : {"model: tokens of answers", "within the limits", "p99",
                            "time to the first token", "requests begun a second"}) {
    EXPECT_NE(chart.find(words), std::string::npos) << words;
  }
  EXPECT_EQ(weft(drawn).err, "weft: ConfigError: " + dir.at("load.svg") +
                                 ": is there already; choose another path or give --force\n");
  server.signal(SIGTERM);
  EXPECT_EQ(server.finish().status, 143);
}

TEST(BenchUrl, RefusesWhatGoesWrongInOneLine) {
  const std::string port = free_port(), url = "http://127.0.0.1:" + port + "/v1";
  const auto refused = [](const Strings& args, int status, const std::string& line) {
    const test::CommandResult result = weft(joined({"bench"}, args));
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_EQ(result.err, "weft: " + line + "\n");
  };
  refused({"--url", url}, 5, "IoError: load: " + url + ": cannot connect: Connection refused");
  refused({"--url", "ftp://a"}, 2,
          "ConfigError: load: URL 'ftp://a', expected one like http://127.0.0.1:8080/v1");
  refused({"--url", "http://a:b"}, 2,
          "ConfigError: load: URL 'http://a:b', expected a host and a port like "
          "http://127.0.0.1:8080/v1");
  refused({"--url", "http://a/b c"}, 2,
          "ConfigError: load: URL 'http://a/b c', expected ASCII without spaces; write others as "
          "%20");
  refused({"--url", ""}, 2,
          "ConfigError: --url: empty, expected one like http://127.0.0.1:8080/v1");
  refused({"--url", url, "--tp", "2"}, 2,
          "ConfigError: --tp: beside --url, expected flags of a load; leave it out");
  refused({"--url", url, "some.gguf"}, 2,
          "ConfigError: --url: beside a model, expected one of them; leave the other out");
  refused({"--clients", "2"}, 2,
          "ConfigError: --clients: without --url, expected the server that is measured with it");
  refused({"--url", url, "--clients", "2", "--rate", "1"}, 2,
          "ConfigError: --rate: beside --clients, expected one of them; leave the other out");
  refused({"--url", url, "--rate", "1,x"}, 2,
          "ConfigError: --rate: '1,x', expected requests a second, 0.001 to 100000, like 0.5,2,8");
  refused({"-o", "load.svg"}, 2,
          "ConfigError: --out: without --url, expected the server that is measured with it");
  refused({"--url", url, "--clients", "0"}, 2,
          "ConfigError: --clients: 0 clients, expected 1 to 1024");
  refused({"--url", url, "--api-key-file", "/dev/null"}, 3,
          "FormatError: /dev/null: not a regular file; give a file's path");
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
