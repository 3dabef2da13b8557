#include <ATen/ops/full.h>
#include <sys/wait.h>
#include <torch/version.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <thread>

#include "weft/cli/flags.h"
#include "weft/cli/session.h"
#include "weft/cli/verbs/run.h"
#include "weft/core/error.h"
#include "weft/dist/launch/launch.h"
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

void print_machine() {
  std::printf("machine    %s, %u cores, %.1f GiB\n", cpu_name().c_str(),
              std::thread::hardware_concurrency(), memory_gib());
  std::printf("libtorch   %s\n", TORCH_VERSION);
  std::printf("kernels    %s\n", quant::kernels::active_kernel().name);
}

// Runs in each of two ranks that check_ranks starts.
int sum_over_ranks(const dist::World& world) {
  at::Tensor x = at::full({1024}, static_cast<double>(world.rank() + 1));
  world.group().all_reduce(x);
  const double expected = world.size() * (world.size() + 1) / 2.0;
  return (x == expected).all().item<bool>() ? 0 : 1;
}

// One check's line; what failed is told by the exception.
bool passes(const char* title, const std::function<std::string()>& check) {
  try {
    std::printf("%-10s %s\n", title, check().c_str());
    std::fflush(stdout);
    return true;
  } catch (const core::Error& error) {
    std::printf("%-10s FAILED: %s\n", title, error.what());
    return false;
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

// The answer of a real model over two ranks, as a user would get it.
std::string check_answer(const std::string& model) {
  const std::string command = "'" + program_path() + "' chat -m '" + model +
                              "' --tp 2 -n 16 -p 'What is the capital of France?'";
  FILE* pipe = ::popen(command.c_str(), "r");
  core::check<core::IoError>(pipe != nullptr, "answer: cannot start ", program_path());
  std::string text;
  char buffer[512];
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) text += buffer;
  const int status = ::pclose(pipe);
  core::check<core::CommError>(WIFEXITED(status) && WEXITSTATUS(status) == 0 && text.size() > 1,
                               "answer: no answer over two ranks, see above");
  text.pop_back();
  return "two ranks say: " + text;
}

}  // namespace

int run_doctor(const DoctorOptions& options) {
  if (options.is_rank) {
    const auto nothing_to_check = [] {};
    return run_ranks({}, options.command, nothing_to_check, sum_over_ranks);
  }
  print_machine();
  bool is_well = passes("ranks", check_ranks);
  is_well &= passes("tokenizer", [&] { return check_tokenizer(model_path(options.model)); });
  is_well &= passes("answer", [&] { return check_answer(model_path(options.model)); });
  std::printf("%s\n", is_well ? "all is well" : "something is wrong, see above");
  return is_well ? 0 : 1;
}

}  // namespace weft::cli
