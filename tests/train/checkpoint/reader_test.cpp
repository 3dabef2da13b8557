#include "weft/train/checkpoint/reader.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/core/error_text.h"
#include "tests/train/checkpoint/saved_by_hand.h"

namespace weft::train {
namespace {

using testing::all_slices;
using testing::cut_wholes;
using testing::CutWhole;
using testing::places_in_whole;
using testing::write_checkpoint;
using weft::testing::error_text;
using weft::testing::replaced;
using weft::testing::TempDir;

TEST(CheckpointReader, ReadsAnyCutOfWhatAnyOtherCutSaved) {
  for (const CutWhole& saved : cut_wholes()) {
    const TempDir dir;
    write_checkpoint(dir, all_slices(saved, 19));
    CheckpointReader reader(dir.path());
    EXPECT_EQ(reader.manifest().step, 12);
    for (const CutWhole& wanted : cut_wholes()) {
      if (saved.sizes != wanted.sizes) continue;
      for (const Slice& slice : all_slices(wanted, 11)) {
        std::vector<float> values(static_cast<size_t>(slice.elements.length), -1);
        reader.read("master", slice, values);
        const auto places = places_in_whole(slice);
        ASSERT_EQ(values, std::vector<float>(places.begin(), places.end()));
      }
    }
  }
}

const Slice kWhole = {"w", {4, 3}, {}, 0, {0, 12}};

std::string slice_error(const TempDir& dir, const std::string& state, const Slice& wanted) {
  std::vector<float> values(static_cast<size_t>(wanted.elements.length));
  return replaced(error_text([&] { CheckpointReader(dir.path()).read(state, wanted, values); }),
                  dir.path(), "DIR");
}

TEST(CheckpointReader, SaysWhatIsMissing) {
  const TempDir dir;
  write_checkpoint(dir, {{"w", {4, 3}, {}, 0, {0, 5}}, {"w", {4, 3}, {}, 0, {6, 6}}});
  EXPECT_EQ(slice_error(dir, "master", kWhole),
            "FormatError: DIR: parameter 'w': no file has element 5 of its master; take another "
            "checkpoint");
  EXPECT_EQ(slice_error(dir, "exp_avg", kWhole),
            "FormatError: DIR: parameter 'w': no exp_avg, it has master; use the optimizer that it "
            "was saved with");
  EXPECT_EQ(slice_error(dir, "master", {"v", {4, 3}, {}, 0, {0, 12}}),
            "FormatError: DIR: no parameter 'v'; it is of another model");
  EXPECT_EQ(slice_error(dir, "master", {"w", {3, 4}, {}, 0, {0, 12}}),
            "FormatError: DIR: parameter 'w': saved as [4, 3], the model's is [3, 4]; it is of "
            "another model");
  std::filesystem::remove(dir.at("rank-1"));
  EXPECT_EQ(slice_error(dir, "master", {"w", {4, 3}, {}, 0, {0, 5}}), "no error")
      << "files that are not needed are not opened";
  EXPECT_EQ(slice_error(dir, "master", {"w", {4, 3}, {}, 0, {6, 2}}),
            "FormatError: DIR/rank-1: no such file; check the path");
}

TEST(CheckpointReader, SeesFilesThatChanged) {
  const TempDir dir;
  const Manifest manifest = write_checkpoint(dir, {kWhole});
  const std::string bytes = dir.read("rank-0");
  const auto check = [&](bool hashes) {
    return replaced(error_text([&] { CheckpointReader(dir.path()).check_file(0, hashes); }),
                    dir.path(), "DIR");
  };
  EXPECT_EQ(check(true), "no error");
  dir.patch("rank-0", bytes.size() - 1, 'x');
  EXPECT_EQ(check(false), "no error");
  EXPECT_EQ(check(true),
            "FormatError: DIR/rank-0: its bytes are not those that were saved (hash); take another "
            "checkpoint");
  dir.write("rank-0", bytes.substr(0, bytes.size() - 1));
  const std::string shorter =
      core::join("FormatError: DIR/rank-0: expected ", bytes.size(), " bytes, got ",
                 bytes.size() - 1, "; take another checkpoint");
  EXPECT_EQ(check(false), shorter);
  EXPECT_EQ(slice_error(dir, "master", kWhole), shorter);
}

// The manifest and the file's own header disagree.
TEST(CheckpointReader, SeesTensorsThatAreNotAsTheManifestSays) {
  const TempDir dir;
  Manifest manifest = write_checkpoint(dir, {kWhole});
  manifest.files[0].slices[0].states.emplace_back("exp_avg");
  dir.write(kManifestName, to_text(manifest));
  EXPECT_EQ(slice_error(dir, "exp_avg", kWhole),
            "FormatError: DIR/rank-0: no tensor 'w/exp_avg', which manifest.json says is there");
  manifest.files[0].slices[0].elements = {0, 11};
  dir.write(kManifestName, to_text(manifest));
  EXPECT_EQ(slice_error(dir, "master", {"w", {4, 3}, {}, 0, {0, 3}}),
            "FormatError: DIR/rank-0: tensor 'w/master': expected 11 values, got 12");
}

TEST(CheckpointReader, ReadsStatesOfTheWhole) {
  const TempDir dir;
  const std::vector<float> row = {1, 2, 3, 4};
  io::write_safetensors(dir.at("rank-0"),
                        {{"w/row", io::Dtype::kF32, {4}, std::as_bytes(std::span(row))}}, {});
  Manifest manifest;
  manifest.parameters["w"] = {{4, 3}, {}};
  manifest.files.push_back(
      {"rank-0", dir.read("rank-0").size(), 0, {{"w", 0, {0, 0}, {}, {"row"}}}});
  dir.write(kManifestName, to_text(manifest));
  CheckpointReader reader(dir.path());
  std::vector<float> values(4);
  reader.read_whole_state("row", "w", values);
  EXPECT_EQ(values, row);
  values.resize(3);
  EXPECT_EQ(
      replaced(error_text([&] { reader.read_whole_state("row", "w", values); }), dir.path(), "DIR"),
      "FormatError: DIR/rank-0: tensor 'w/row': expected 3 values, got 4");
  EXPECT_EQ(replaced(error_text([&] { reader.read_whole_state("column", "w", values); }),
                     dir.path(), "DIR"),
            "FormatError: DIR: parameter 'w': no column, it has row; use the optimizer that it was "
            "saved with");
}

}  // namespace
}  // namespace weft::train
