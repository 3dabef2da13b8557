#include <ATen/ops/full.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>

#include "weft/cli/flags.h"
#include "weft/cli/model/session.h"
#include "weft/cli/streams.h"
#include "weft/cli/verbs/run.h"
#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/core/terminal/printable.h"
#include "weft/dist/launch/launch.h"
#include "weft/dist/launch/rank_process.h"
#include "weft/models/config/sources.h"
#include "weft/quant/kernels/select.h"

namespace weft::cli {
namespace {

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

double memory_gib() {
  return static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<double>(::sysconf(_SC_PAGE_SIZE)) / (1 << 30);
}

void print_line(std::string title, const std::string& text) {
  title.resize(10, ' ');
  TextOutput().write(core::join(title, " ", core::printable(text), "\n"));
}

void print_machine() {
  char memory[32];
  std::snprintf(memory, sizeof memory, "%.1f GiB", memory_gib());
  print_line("machine",
             core::join(cpu_name(), ", ", std::thread::hardware_concurrency(), " cores, ", memory));
  print_line("libtorch", TORCH_VERSION);
  print_line("kernels", quant::kernels::active_kernel().name);
}

// Runs in each of two ranks that check_ranks starts.
int sum_over_ranks(const dist::World& world) {
  at::Tensor x = at::full({1024}, static_cast<double>(world.rank() + 1));
  world.group().all_reduce(x);
  const double expected = world.size() * (world.size() + 1) / 2.0;
  return (x == expected).all().item<bool>() ? 0 : 1;
}

// One check's line; what failed is told by the exception. Returns 0, or its exit code.
int status_of(const char* title, const std::function<std::string()>& check) {
  try {
    print_line(title, check());
    return 0;
  } catch (const core::Error& error) {
    print_line(title, core::join("FAILED: ", error.what()));
    return error.exit_code();
  }
}

std::string check_ranks() {
  dist::LaunchOptions options;
  options.num_ranks = 2;
  options.prefix_output = false;
  options.command = {program_path(), "doctor", "--sum-over-ranks"};
  const int status = dist::launch(options);
  core::check<core::CommError>(status == 0, "two-rank all-reduce: exit status ", status);
  return "two ranks sum alike";
}

std::string check_tokenizer(const std::string& model) {
  const text::Tokenizer tokenizer = models::load_tokenizer(*io::TensorFile::open(model));
  const std::string text = "The capital of France is Paris. \xc3\xa9\xe2\x82\xac 12345\n";
  const std::string back = tokenizer.decode(tokenizer.encode(text));
  core::check<core::InternalError>(back == text, "tokenizer: '", back, "' came back for '", text,
                                   "'");
  return core::join(tokenizer.vocab_size(), " tokens, text comes back unchanged");
}

// What a program writes to stdout. Throws CommError, which begins with `where`, unless it succeeds.
std::string output_of(const Args& command, const std::string& where) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) core::fail_errno(where, "pipe", errno);
  const core::FileDescriptor reader(ends[0]);
  core::FileDescriptor writer(ends[1]);
  dist::SpawnRequest request;
  request.command = command;
  request.stdout_fd = writer.get();
  const pid_t pid = dist::spawn_rank(request);
  writer.reset();
  std::string text;
  std::array<char, 512> bytes{};
  while (true) {
    const ssize_t length = ::read(reader.get(), bytes.data(), bytes.size());
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) break;
    text.append(bytes.data(), static_cast<size_t>(length));
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  core::check<core::CommError>(WIFEXITED(status) && WEXITSTATUS(status) == 0, where,
                               ": expected an answer over two ranks, got none; see above");
  return text;
}

// The answer of a real model over two ranks, as a user would get it.
std::string check_answer(const std::string& model) {
  std::string text = output_of({program_path(), "chat", "--model=" + model, "--tp", "2", "-n", "16",
                                "-p", "What is the capital of France?"},
                               "answer");
  if (text.ends_with('\n')) text.pop_back();
  core::check<core::CommError>(!text.empty(), "answer: two ranks say nothing");
  return "two ranks say: " + text;
}

}  // namespace

int run_doctor(const DoctorOptions& options) {
  if (options.is_rank) {
    const auto nothing_to_check = [] {};
    return run_ranks({}, options.command, nothing_to_check, sum_over_ranks);
  }
  print_machine();
  const std::string model = model_path(options.model);
  const int statuses[] = {status_of("ranks", check_ranks),
                          status_of("tokenizer", [&] { return check_tokenizer(model); }),
                          status_of("answer", [&] { return check_answer(model); })};
  const auto* const failed = std::find_if(std::begin(statuses), std::end(statuses),
                                          [](int status) { return status != 0; });
  const bool is_well = failed == std::end(statuses);
  TextOutput().write(is_well ? "all is well\n" : "something is wrong, see above\n");
  return is_well ? 0 : *failed;
}

}  // namespace weft::cli
