#include "weft/core/files/atomic_folder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/core/child.h"
#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"

namespace weft::core {
namespace {

namespace fs = std::filesystem;
using testing::error_text;
using testing::replaced;
using testing::TempDir;

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

void save(const std::string& path, const std::string& text, bool replaces = false) {
  AtomicFolder folder(path, replaces, "config.json");
  write(folder.temporary_path() + "/config.json", text);
  folder.commit();
}

TEST(AtomicFolder, WritesAndReplaces) {
  const TempDir dir;
  save(dir.at("m/"), "first");
  EXPECT_EQ(dir.read("m/config.json"), "first");
  write(dir.at("m/old"), "old");
  save(dir.at("m"), "second", true);
  EXPECT_EQ(dir.read("m/config.json"), "second");
  EXPECT_FALSE(fs::exists(dir.at("m/old")));
  EXPECT_EQ(dir.num_files(), 1U);
}

TEST(AtomicFolder, LeavesNothingWithoutCommit) {
  const TempDir dir;
  save(dir.at("m"), "first");
  {
    AtomicFolder folder(dir.at("m"), true, "config.json");
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
  save(dir.at("m"), "first");
  const auto error = [&](const std::string& name, bool replaces) {
    return replaced(error_text([&] { save(dir.at(name), "new", replaces); }), dir.path(), "DIR");
  };
  EXPECT_EQ(error("m", false),
            "ConfigError: DIR/m: is there already; choose another path or give --force");
  EXPECT_EQ(error("file", true),
            "ConfigError: DIR/file: is there and no folder; choose another path");
  EXPECT_EQ(error("home", true),
            "ConfigError: DIR/home: holds no config.json, so it is no model's folder; --force "
            "replaces only these");
  EXPECT_EQ(error("none/m", false), "IoError: DIR/none/m: cannot make DIR/none/m.tmp-" +
                                        std::to_string(::getpid()) + ": No such file or directory");
  EXPECT_EQ(dir.read("home/letter"), "dear");
  EXPECT_EQ(dir.read("m/config.json"), "first");
}

TEST(AtomicFolder, TakesThePlaceOfAnEmptyFolder) {
  const TempDir dir;
  fs::create_directory(dir.at("m"));
  save(dir.at("m"), "new", true);
  EXPECT_EQ(dir.read("m/config.json"), "new");
}

}  // namespace
}  // namespace weft::core
