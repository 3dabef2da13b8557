#include "weft/train/checkpoint/writer.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <random>
#include <regex>
#include <stdexcept>
#include <thread>

#include "tests/core/child.h"
#include "tests/core/error_text.h"
#include "tests/core/small_disk.h"
#include "tests/support/run_command.h"
#include "tests/train/checkpoint/trained.h"
#include "weft/dist/launch/launch.h"
#include "weft/train/checkpoint/folder.h"
#include "weft/train/checkpoint/load.h"

namespace weft::train {
namespace {

using testing::folder_of;
using testing::only_value;
using testing::random_wholes;
using testing::read_whole;
using testing::Trained;
using testing::uniform;
using testing::with_folder;
using weft::testing::error_text;
using weft::testing::replaced;
using weft::testing::TempDir;

TEST(CheckpointWriter, KeepsTheNewestAndCleansUp) {
  const TempDir dir;
  const std::string run = dir.path();
  EXPECT_EQ(find_latest(run), std::nullopt);
  std::filesystem::create_directories(run + "/checkpoints/step-000007.tmp-123");
  std::filesystem::create_directories(run + "/checkpoints/step-000003.tmp-removed");
  std::filesystem::create_directories(run + "/checkpoints/notes.tmp-1");
  for (const int64_t step : {9, 10, 100, 99}) save_checkpoint(run, uniform(step, 5), 2, {});
  EXPECT_EQ(list_checkpoints(run), (std::vector<int64_t>{99, 100}));
  EXPECT_EQ(only_value(find_latest(run).value()), 100);
  size_t entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/checkpoints")) {
    entries += entry.exists();
  }
  EXPECT_EQ(entries, 3U) << "two checkpoints and what is not ours";
}

TEST(CheckpointWriter, OneOfTheSameStepIsReplaced) {
  const TempDir dir;
  CheckpointContent content = uniform(5, 6);
  save_checkpoint(dir.path(), content, 2, {});
  for (StateTensor& each : content.tensors) each.values = at::full({6}, 2.0);
  save_checkpoint(dir.path(), content, 2, {});
  EXPECT_EQ(only_value(find_latest(dir.path()).value()), 2);
}

TEST(CheckpointWriter, InTheBackgroundTheTensorsMayChange) {
  const TempDir dir;
  CheckpointWriter writer(dir.path(), {2, true}, {});
  for (int64_t step = 1; step <= 3; ++step) {
    CheckpointContent content = uniform(step, 100'000);
    writer.begin(content);
    content.tensors[0].values.fill_(-1);
    content.tensors[1].values.fill_(-1);
    // The one before is complete as soon as the next has begun.
    if (step > 1) {
      EXPECT_EQ(only_value(find_latest(dir.path()).value()), static_cast<float>(step - 1));
    }
  }
  writer.finish();
  EXPECT_EQ(only_value(find_latest(dir.path()).value()), 3);
  EXPECT_EQ(list_checkpoints(dir.path()).size(), 2U);
}

TEST(CheckpointWriter, WhatWasNotFinishedGoes) {
  const TempDir dir;
  save_checkpoint(dir.path(), uniform(1, 10), 2, {});
  { CheckpointWriter(dir.path(), {2, true}, {}).begin(uniform(2, 10)); }
  EXPECT_EQ(list_checkpoints(dir.path()), (std::vector<int64_t>{1}));
  const std::filesystem::directory_iterator entries(dir.path() + "/checkpoints");
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

// Saves until it is killed.
int save_forever(const std::string& run) {
  const auto latest = list_checkpoints(run);
  for (int64_t step = latest.empty() ? 1 : latest.back() + 1;; ++step) {
    save_checkpoint(run, uniform(step, 20'000), 2, {});
  }
}

TEST(CheckpointWriter, KilledAtAnyMomentOneLoads) {
  const TempDir dir;
  save_checkpoint(dir.path(), uniform(1, 20'000), 2, {});
  std::mt19937 random(6);
  int64_t newest = 1;
  for (int i = 0; i < 50; ++i) {
    test::BackgroundCommand saving([&] { return save_forever(dir.path()); });
    std::this_thread::sleep_for(std::chrono::microseconds(1000 + random() % 60'000));
    saving.signal(SIGKILL);
    EXPECT_EQ(saving.finish().status, 128 + SIGKILL);
    const auto steps = list_checkpoints(dir.path());
    ASSERT_FALSE(steps.empty());
    EXPECT_GE(steps.back(), newest) << "the newest must stay";
    newest = steps.back();
    for (const int64_t step : steps) {
      EXPECT_EQ(only_value(checkpoint_path(dir.path(), step)), static_cast<float>(step));
    }
  }
  EXPECT_GT(newest, 1) << "nothing was ever saved";
  save_checkpoint(dir.path(), uniform(newest + 1, 5), 1, {});
  const std::filesystem::directory_iterator entries(dir.path() + "/checkpoints");
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1) << "what was left is cleaned up";
}

// A rank of a job that saves until ranks of it are killed.
TEST(CheckpointProgram, DISABLED_SavesForever) {
  const dist::World world = dist::World::from_env();
  const std::string run = std::getenv("WEFT_TEST_FOLDER");
  std::printf("process =%d= is rank %d\n", ::getpid(), world.rank());
  std::fflush(stdout);
  const int64_t first = std::atoll(std::getenv("WEFT_TEST_STEP"));
  try {
    for (int64_t step = first;; ++step) {
      Trained trained(AdamwOptions(), {1, world.size(), 1}, world);
      for (const StateTensor& each : trained.optimizer->state()) {
        each.values.fill_(static_cast<double>(step));
      }
      save_checkpoint(run, {step, trained.optimizer->state(), "null"}, 2, world.group());
      if (world.rank() == 0 && step == first) {
        std::printf("saved one\n");
        std::fflush(stdout);
      }
    }
  } catch (const core::CommError&) {
    ::_exit(4);
  }
}

std::vector<int> processes_of_ranks(test::BackgroundCommand& job, int num_ranks) {
  std::vector<int> processes;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::string end = core::join("= is rank ", rank, "\n");
    if (!job.wait_for_output(end)) throw std::runtime_error(end + "was not written");
    std::smatch match;
    const std::string seen = job.output();
    std::regex_search(seen, match, std::regex("process =([0-9]+)" + end));
    processes.push_back(std::stoi(match[1]));
  }
  return processes;
}

struct Kill {
  int num_ranks = 0;
  /// None: all of them.
  std::optional<size_t> rank;
  /// How long after the first save, as a share of the time that it took.
  double after = 0;
};

// Saves from `step` on and kills ranks after a while.
void save_and_kill(const std::string& run, int64_t step, const Kill& kill) {
  dist::LaunchOptions options;
  options.num_ranks = kill.num_ranks;
  options.command = {"/proc/self/exe", "--gtest_also_run_disabled_tests", "--gtest_brief=1",
                     "--gtest_filter=CheckpointProgram.DISABLED_SavesForever"};
  test::BackgroundCommand job(
      [&] { return dist::launch(options); },
      {.variables = {{"WEFT_TEST_FOLDER", run}, {"WEFT_TEST_STEP", std::to_string(step)}}});
  const auto processes = processes_of_ranks(job, kill.num_ranks);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(job.wait_for_output("saved one\n"));
  std::this_thread::sleep_for((std::chrono::steady_clock::now() - start) * kill.after);
  for (size_t rank = 0; rank < processes.size(); ++rank) {
    if (kill.rank.value_or(rank) == rank) ::kill(processes[rank], SIGKILL);
  }
  const test::CommandResult result = job.finish();
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.status, 4) << result.err;
}

// Every file and every element, of the parameters of all ranks.
void expect_whole(const std::string& run, int64_t step) {
  CheckpointReader reader(checkpoint_path(run, step));
  for (size_t file = 0; file < reader.manifest().files.size(); ++file)
    reader.check_file(file, true);
  EXPECT_EQ(reader.manifest().parameters.size(), random_wholes(1).size());
  for (const auto& [name, parameter] : reader.manifest().parameters) {
    for (const std::string state : {"master", "exp_avg", "exp_avg_sq"}) {
      const auto values = read_whole(reader, name, state);
      EXPECT_EQ(std::count(values.begin(), values.end(), static_cast<float>(step)),
                static_cast<int64_t>(values.size()));
    }
  }
}

// Whichever rank it is, or all at once; what was complete before stays, also as the next job finds
// what this one left.
void expect_one_loads_after_kills(int num_ranks, uint64_t seed) {
  const TempDir dir;
  std::mt19937 random(seed);
  int64_t newest = 0;
  for (int i = 0; i < 25; ++i) {
    Kill kill{num_ranks, std::nullopt, std::uniform_real_distribution(0.0, 3.0)(random)};
    if (i % 3 > 0) kill.rank = random() % static_cast<size_t>(num_ranks);
    save_and_kill(dir.path(), newest + 1, kill);
    const auto steps = list_checkpoints(dir.path());
    ASSERT_TRUE(newest == 0 || (!steps.empty() && steps.back() >= newest))
        << "the newest must stay";
    for (const int64_t step : steps) expect_whole(dir.path(), step);
    newest = steps.empty() ? 0 : steps.back();
  }
  EXPECT_GE(newest, 25) << "each job saves at least once";
}

TEST(CheckpointWriter, KilledAtAnyMomentOfTwoRanksOneLoads) { expect_one_loads_after_kills(2, 7); }

TEST(CheckpointWriter, KilledAtAnyMomentOfThreeRanksOneLoads) {
  expect_one_loads_after_kills(3, 8);
}

TEST(CheckpointWriter, AFullDiskKeepsTheOld) {
  const TempDir dir;
  // Made here: libtorch's threads don't live in a forked process.
  const CheckpointContent small = uniform(1, 20'000);
  const CheckpointContent large = uniform(2, 1'000'000);
  const std::string text = weft::testing::in_child([&] {
    if (!weft::testing::mount_small_disk(dir.path())) return std::string("not allowed");
    save_checkpoint(dir.path(), small, 2, {});
    const std::string error = error_text([&] { save_checkpoint(dir.path(), large, 2, {}); });
    const std::filesystem::directory_iterator entries(dir.path() + "/checkpoints");
    return core::join(replaced(error, dir.path(), "RUN"), "|",
                      only_value(find_latest(dir.path()).value()), "|",
                      std::distance(begin(entries), end(entries)));
  });
  if (text == "not allowed") GTEST_SKIP() << "mounting in a user namespace is not allowed here";
  const std::string beginning = "IoError: RUN/checkpoints/step-000002.tmp-";
  EXPECT_EQ(text.substr(0, beginning.size()), beginning);
  EXPECT_NE(text.find("/rank-00000.safetensors: disk full: need 8000"), std::string::npos) << text;
  EXPECT_EQ(text.substr(text.find('|')), "|1|1");
}

// The same with several ranks: the last one gets no more than `bytes` into a file, as on a full
// disk of its own.
TEST(CheckpointWriter, AFullDiskOfOneRankIsAnErrorOfAllAndKeepsTheOld) {
  const TempDir dir;
  const auto body = [&](const dist::World& world) {
    const std::string run = folder_of(dir);
    Trained trained(AdamwOptions(), {1, 3, 1}, world);
    trained.step();
    save_checkpoint(run, {1, trained.optimizer->state(), "null"}, 2, world.group());
    if (world.rank() == 2) {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{1000, 1000};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    const std::string text = error_text([&] {
      save_checkpoint(run, {2, trained.optimizer->state(), "null"}, 2, world.group());
    });
    EXPECT_EQ(text.substr(0, 9 + run.size()), "IoError: " + run);
    EXPECT_NE(text.find("/rank-00002.safetensors: cannot write at byte 0: File too large"),
              std::string::npos)
        << text;
    EXPECT_EQ(list_checkpoints(run), (std::vector<int64_t>{1}));
    load_checkpoint(find_latest(run).value(), trained.optimizer->state(), true, world.group());
    if (world.rank() == 0) {
      const std::filesystem::directory_iterator entries(run + "/checkpoints");
      EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
    }
  };
  test::run_ranks(3, body, with_folder(dir));
}

}  // namespace
}  // namespace weft::train
