#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/io/formats/write_safetensors.h"
#include "weft/models/load/load.h"

/// Times how one rank of two loads its part of a file of 1 GB that lies in the page cache, against
/// reading as many bytes as `cat FILE > /dev/null` does: into one buffer of 128 KiB. Runs take
/// turns; medians. What loading has to do and cat has not: fresh memory, which the kernel clears
/// page by page.
namespace {

using weft::io::Dtype;
using weft::models::Cut;
using weft::models::LoadPlan;
using weft::models::WeightRules;

constexpr int64_t kOut = 8192;
constexpr int64_t kIn = 8192;
constexpr int kRounds = 5;

struct Case {
  const char* name;
  Cut cut;
  bool is_quantized;
};

constexpr Case kCases[] = {{"F32 by rows", Cut::kRows, false},
                           {"F32 by columns", Cut::kColumns, false},
                           {"affine 4-bit by rows", Cut::kRows, true},
                           {"affine 4-bit by columns", Cut::kColumns, true}};

double seconds_of(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// As many matrices as make a gigabyte. Returns how many.
int64_t write_file(const std::string& path, bool is_quantized) {
  constexpr int64_t kGroup = 64;
  std::mt19937_64 random(1);
  std::vector<uint64_t> noise(static_cast<size_t>(kOut * kIn / 2));
  for (uint64_t& word : noise) word = random();
  const auto bytes = std::as_bytes(std::span(noise));
  const int64_t count = is_quantized ? 26 : 4;
  std::vector<weft::io::TensorToWrite> list;
  for (int64_t i = 0; i < count; ++i) {
    const std::string base = weft::core::join("m", i);
    if (!is_quantized) {
      list.push_back({weft::core::join(base, ".weight"), Dtype::kF32, {kOut, kIn}, bytes});
      continue;
    }
    list.push_back({weft::core::join(base, ".weight"),
                    Dtype::kU32,
                    {kOut, kIn / 8},
                    bytes.first(kOut * kIn / 2)});
    for (const char* part : {".scales", ".biases"}) {
      list.push_back({weft::core::join(base, part),
                      Dtype::kF16,
                      {kOut, kIn / kGroup},
                      bytes.first(kOut * kIn / kGroup * 2)});
    }
  }
  weft::io::write_safetensors(path, list, {});
  return count;
}

WeightRules rules_of(int64_t count, Cut cut) {
  WeightRules rules;
  rules.splits["rows"].size = kOut;
  rules.splits["columns"].size = kIn;
  rules.splits["columns"].unit = 64;
  for (int64_t i = 0; i < count; ++i) {
    weft::models::WeightRule& rule = rules.weights.emplace_back();
    rule.name = rule.file_name = weft::core::join("m", i, ".weight");
    rule.out = kOut;
    rule.in = kIn;
    rule.cut = cut;
    rule.split = cut == Cut::kRows ? "rows" : "columns";
  }
  return rules;
}

/// What cat does with the first `bytes` of the file.
void read_through(const std::string& path, uint64_t bytes) {
  constexpr uint64_t kBuffer = 128 * 1024;
  const weft::core::File file(path);
  std::vector<std::byte> buffer(kBuffer);
  for (uint64_t at = 0; at < bytes; at += kBuffer) {
    file.read_at(at, std::span(buffer).first(std::min(kBuffer, bytes - at)));
  }
}

/// Takes as much memory from the system as a load will, and gives it back: a virtual machine's own
/// host may have to find memory that the machine did not use for a while, at a tenth of the speed.
void touch_memory(uint64_t bytes) {
  const size_t size = bytes + bytes / 4;
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  weft::core::check<weft::core::IoError>(memory != MAP_FAILED, "bench_load: no memory");
  ::madvise(memory, size, MADV_HUGEPAGE);
  ::madvise(memory, size, MADV_POPULATE_WRITE);
  ::munmap(memory, size);
}

using Weights = std::vector<std::shared_ptr<weft::nn::LinearLike>>;

Weights load(const weft::io::TensorFile& file, const LoadPlan& plan) {
  const weft::models::WeightReader reader(file, plan, 0);
  Weights kept;
  for (const auto& weight : plan.weights()) {
    kept.push_back(reader.linear(weight.rule.base(), false));
  }
  return kept;
}

void measure(const Case& each, const std::string& path, int64_t count) {
  const auto file = weft::io::TensorFile::open(path);
  const LoadPlan plan(*file, rules_of(count, each.cut), 2);
  const uint64_t bytes = plan.params().planned_bytes(0);
  std::vector<double> loads, cats;
  for (int round = 0; round < kRounds; ++round) {
    cats.push_back(seconds_of([&] { read_through(path, bytes); }));
    touch_memory(bytes);
    // What was loaded stays until it was timed.
    Weights kept;
    loads.push_back(seconds_of([&] { kept = load(*file, plan); }));
  }
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  std::printf("%-26s %6.2f GB  load %5.2f GB/s  cat %5.2f GB/s  %3.0f %%\n", each.name, gigabytes,
              gigabytes / median(loads), gigabytes / median(cats),
              100 * median(cats) / median(loads));
}

}  // namespace

int main(int argc, char** argv) {
  // load_bench [FOLDER [CASE]]: CASE is a part of the names of the cases to run.
  const std::string folder = argc > 1 ? argv[1] : std::filesystem::temp_directory_path().string();
  const std::string chosen = argc > 2 ? argv[2] : "";
  for (const bool is_quantized : {false, true}) {
    const std::string path = folder + "/weft-bench-load.safetensors";
    const int64_t count = write_file(path, is_quantized);
    for (const Case& each : kCases) {
      const bool is_chosen = std::string(each.name).find(chosen) != std::string::npos;
      if (each.is_quantized == is_quantized && is_chosen) measure(each, path, count);
    }
    std::filesystem::remove(path);
  }
  return 0;
}
