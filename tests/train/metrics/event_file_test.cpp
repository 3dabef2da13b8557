#include "weft/train/metrics/event_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "weft/train/metrics/crc32c.h"

namespace weft::train {
namespace {

using weft::testing::TempDir;

uint32_t crc_of(const std::string& bytes) { return crc32c(std::as_bytes(std::span(bytes))); }

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The messages of a file; every checksum is checked.
std::vector<std::string> read_records(const std::string& bytes) {
  std::vector<std::string> messages;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    messages.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(frame_record(messages.back()), bytes.substr(at, length + 16));
    at += length + 16;
  }
  return messages;
}

// What comes behind the wall time, which differs from run to run.
std::string timeless(const std::string& message) { return message.substr(9); }

TEST(Crc32c, AgreesWithThePublishedVectors) {
  std::string ascending, descending;
  for (int i = 0; i < 32; ++i) {
    ascending += static_cast<char>(i);
    descending += static_cast<char>(31 - i);
  }
  EXPECT_EQ(crc_of(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc_of(std::string(32, '\xFF')), 0x62A8AB43U);
  EXPECT_EQ(crc_of(ascending), 0x46DD794EU);
  EXPECT_EQ(crc_of(descending), 0x113FDB5CU);
  EXPECT_EQ(crc_of("123456789"), 0xE3069283U);
  EXPECT_EQ(crc_of(""), 0U);
}

TEST(EventFile, WritesTheBytesOfTheReferenceWriter) {
  std::string bytes = frame_record(encode_version_event(1700000000.25));
  bytes += frame_record(encode_start_event(1700000000.5, 7));
  const std::pair<int64_t, Scalars> steps[] = {
      {1, {{"train/loss", 3.25}, {"train/lr", 0.0}}},
      {300, {{"train/loss", -1.5e-8}, {"eval/löss", 2.0}}},
      {int64_t{1} << 40, {{"train/tokens_per_s", 123456.789}}}};
  for (const auto& [step, scalars] : steps) {
    const double time = 1700000001.0 + static_cast<double>(step);
    bytes += frame_record(encode_scalars_event(time, step, scalars));
  }
  EXPECT_EQ(bytes, read_file(WEFT_SOURCE_DIR "/tests/train/metrics/data/scalars.tfevents"));
}

TEST(EventFile, HoldsAVersionAndTheScalarsOfEachStep) {
  const TempDir dir;
  std::string path;
  {
    EventFile file(dir.path(), 0);
    path = file.path();
    file.append(1, {{"train/loss", 2.5}});
    file.append(2, {{"train/loss", 1.5}, {"eval/loss", 1.75}});
  }
  EXPECT_NE(path.find("/events.out.tfevents."), std::string::npos);
  const auto messages = read_records(read_file(path));
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_EQ(timeless(messages[0]), timeless(encode_version_event(0)));
  EXPECT_EQ(timeless(messages[1]), timeless(encode_scalars_event(0, 1, {{"train/loss", 2.5}})));
  EXPECT_EQ(timeless(messages[2]),
            timeless(encode_scalars_event(0, 2, {{"train/loss", 1.5}, {"eval/loss", 1.75}})));
}

TEST(EventFile, TellsReadersToForgetTheStepsThatAreDoneAgain) {
  const TempDir dir;
  const EventFile file(dir.path(), 10);
  const auto messages = read_records(read_file(file.path()));
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(timeless(messages[1]), timeless(encode_start_event(0, 11)));
}

TEST(EventFile, IsSeenWhileItIsWritten) {
  const TempDir dir;
  EventFile file(dir.path(), 0);
  file.append(1, {{"train/loss", 2.5}});
  EXPECT_EQ(read_records(read_file(file.path())).size(), 2U);
}

TEST(EventFile, RefusesAFolderThatIsNotThere) {
  const std::string error = weft::testing::error_text([] { EventFile("/nowhere/run", 0); });
  EXPECT_EQ(error.rfind("IoError: /nowhere/run/events.out.tfevents.", 0), 0U) << error;
}

}  // namespace
}  // namespace weft::train
