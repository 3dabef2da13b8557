#include "weft/core/files/atomic_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "tests/core/child.h"
#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "weft/core/files/atomic_file.h"

namespace weft::core {
namespace {

namespace fs = std::filesystem;
using testing::error_text;
using testing::in_child;
using testing::replaced;
using testing::TempDir;

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

bool is_part(const std::string& name) {
  return name == "config.json" || name == "old" || name == "templates" || name == "templates/a";
}

const ReplaceableFolder kModel = {"config.json", is_part, "say so"};

void save_folder(const std::string& path, const std::string& text, bool replaces = false) {
  AtomicFolder folder(path, replaces, kModel);
  write(folder.temporary_path() + "/config.json", text);
  folder.commit();
}

TEST(AtomicFolder, WritesAndReplaces) {
  const TempDir dir;
  save_folder(dir.at("m/"), "first");
  EXPECT_EQ(dir.read("m/config.json"), "first");
  write(dir.at("m/old"), "old");
  fs::create_directory(dir.at("m/templates"));
  write(dir.at("m/templates/a"), "a");
  save_folder(dir.at("m/.//./"), "second", true);
  EXPECT_EQ(dir.read("m/config.json"), "second");
  EXPECT_FALSE(fs::exists(dir.at("m/old")));
  EXPECT_EQ(dir.num_files(), 1U);
}

TEST(AtomicFolder, LeavesNothingWithoutCommit) {
  const TempDir dir;
  save_folder(dir.at("m"), "first");
  {
    AtomicFolder folder(dir.at("m"), true, kModel);
    write(folder.temporary_path() + "/config.json", "half");
    EXPECT_EQ(dir.read("m/config.json"), "first");
    EXPECT_EQ(dir.num_files(), 2U);
  }
  EXPECT_EQ(dir.read("m/config.json"), "first");
  EXPECT_EQ(dir.num_files(), 1U);
}

TEST(AtomicFolder, RefusesToReplaceWhatIsNoModel) {
  const TempDir dir;
  fs::create_directory(dir.at("home"));
  write(dir.at("home/letter"), "dear");
  write(dir.at("file"), "x");
  save_folder(dir.at("m"), "first");
  const auto error = [&](const std::string& name, bool replaces) {
    return replaced(error_text([&] { save_folder(dir.at(name), "new", replaces); }), dir.path(),
                    "DIR");
  };
  EXPECT_EQ(error("m", false),
            "ConfigError: DIR/m: is there already; choose another path or say so");
  EXPECT_EQ(error("file", true),
            "ConfigError: DIR/file: is there and no folder; choose another path");
  EXPECT_EQ(error("home", true),
            "ConfigError: DIR/home: holds no config.json, so it is not replaced; choose another "
            "path");
  for (const std::string name : {"..", "m/.."}) {
    EXPECT_EQ(error(name, true), "ConfigError: 'DIR/" + name +
                                     "': not a folder to write; give a path that ends in its name")
        << name;
  }
  EXPECT_EQ(error("none/m", false), "IoError: DIR/none/m: cannot make DIR/none/m.tmp-" +
                                        std::to_string(::getpid()) + ": No such file or directory");
  EXPECT_EQ(dir.read("home/letter"), "dear");
  EXPECT_EQ(dir.read("m/config.json"), "first");
}

TEST(AtomicFolder, RefusesToRemoveWhatIsNoPartOfAModel) {
  const TempDir dir;
  save_folder(dir.at("m"), "first");
  fs::create_directory(dir.at("m/templates"));
  for (const std::string name : {"letter", "templates/letter"}) {
    write(dir.at("m/" + name), "dear");
    EXPECT_EQ(
        replaced(error_text([&] { save_folder(dir.at("m"), "new", true); }), dir.path(), "DIR"),
        "ConfigError: DIR/m: holds '" + name +
            "', which replacing the folder would remove; choose another path or move that "
            "elsewhere");
    EXPECT_EQ(dir.read("m/" + name), "dear");
    fs::remove(dir.at("m/" + name));
  }
  EXPECT_EQ(dir.read("m/config.json"), "first");
}

TEST(AtomicFolder, RefusesWhatCameWhileItWasWritten) {
  const TempDir dir;
  {
    AtomicFolder folder(dir.at("m"), false, kModel);
    fs::create_directory(dir.at("m"));
    write(dir.at("m/config.json"), "of another");
    EXPECT_EQ(replaced(error_text([&] { folder.commit(); }), dir.path(), "DIR"),
              "ConfigError: DIR/m: is there already; choose another path or say so");
  }
  EXPECT_EQ(dir.read("m/config.json"), "of another");
  EXPECT_EQ(dir.num_files(), 1U);
}

// A process that writes a folder and a file until it is told to end, with or without their ends.
class Writer {
 public:
  explicit Writer(const TempDir& dir) {
    std::array<int, 2> ready{};
    if (::pipe(ready.data()) != 0) ADD_FAILURE() << "pipe";
    pid_ = ::fork();
    if (pid_ == 0) {
      AtomicFolder folder(dir.at("m"), false, kModel);
      AtomicFile file(dir.at("f"), 1);
      [[maybe_unused]] const ssize_t told = ::write(ready[1], "x", 1);
      ::pause();
      ::_exit(0);
    }
    ::close(ready[1]);
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  // It ends, but its number stays taken, as nobody asks how it ended.
  void kill_without_asking() const {
    ::kill(pid_, SIGKILL);
    siginfo_t info = {};
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT), 0);
  }

 private:
  pid_t pid_ = 0;
};

TEST(AtomicFolder, RemovesWhatKilledProcessesLeft) {
  const TempDir dir;
  { const Writer killed(dir); }
  EXPECT_EQ(dir.num_files(), 2U);
  const Writer other(dir);
  // That of the killed one went; what is no process's stays.
  EXPECT_EQ(dir.num_files(), 2U);
  dir.write("f.tmp-", "");
  fs::create_directory(dir.at("m.tmp-1x"));
  save_folder(dir.at("m"), "mine");
  // What the other still writes stays.
  EXPECT_EQ(dir.num_files(), 5U);
}

TEST(AtomicFolder, RemovesWhatAKilledProcessLeftThatNobodyWaitedFor) {
  const TempDir dir;
  const Writer killed(dir);
  killed.kill_without_asking();
  ASSERT_EQ(dir.num_files(), 2U);
  save_folder(dir.at("m"), "mine");
  AtomicFile(dir.at("f"), 1).commit();
  EXPECT_EQ(dir.num_files(), 2U);
  EXPECT_EQ(dir.read("m/config.json"), "mine");
}

TEST(AtomicFolder, RemovesWhatIsOlderThanTheProcessOfItsNumber) {
  const TempDir dir;
  const Writer other(dir);
  ASSERT_EQ(dir.num_files(), 2U);
  // What a process left that had the number of a parent or neighbour of this one before it.
  const std::string parent = std::to_string(::getppid());
  const std::string old = dir.write("f.tmp-" + parent, "half");
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(24 * 365));
  AtomicFile(dir.at("f"), 1).commit();
  EXPECT_FALSE(fs::exists(old));
  // Of today it may be that process's own.
  dir.write("f.tmp-" + parent, "half");
  AtomicFile(dir.at("f"), 1).commit();
  EXPECT_TRUE(fs::exists(old));
  EXPECT_EQ(dir.num_files(), 4U);
}

TEST(AtomicFolder, IsRemovedWithoutAFreeDescriptor) {
  const TempDir dir;
  const std::string left = in_child([&] {
    {
      AtomicFolder folder(dir.at("m"), false, kModel);
      write(folder.temporary_path() + "/config.json", "half");
      const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      ::close(next);
      const rlimit none = {static_cast<rlim_t>(next), static_cast<rlim_t>(next)};
      EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    }
    return std::to_string(dir.num_files());
  });
  EXPECT_EQ(left, "0");
}

TEST(AtomicFolder, IsNotBegunWithoutAFreeDescriptor) {
  const TempDir dir;
  const std::string said = in_child([&] {
    const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(next);
    const rlimit none = {static_cast<rlim_t>(next), static_cast<rlim_t>(next)};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    return error_text([&] { AtomicFolder(dir.at("m"), false, kModel); });
  });
  EXPECT_EQ(said.rfind("IoError: ", 0), 0U) << said;
  EXPECT_NE(said.find(": Too many open files"), std::string::npos) << said;
  EXPECT_EQ(dir.num_files(), 0U);
}

TEST(AtomicFolder, TakesThePlaceOfAnEmptyFolder) {
  const TempDir dir;
  fs::create_directory(dir.at("m"));
  save_folder(dir.at("m"), "new", true);
  EXPECT_EQ(dir.read("m/config.json"), "new");
}

}  // namespace
}  // namespace weft::core
