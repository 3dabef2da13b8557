#include "weft/dist/shm/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/dist/message_of.h"
#include "tests/support/run_command.h"
#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/dist/launch/shm_names.h"

namespace weft::dist {
namespace {

using namespace std::string_literals;
using test::message_of;

// A name that no other run uses; removed at the end.
struct Name {
  std::string text = shm_name("test", std::to_string(getpid()));
  Name() = default;
  Name(const Name&) = delete;
  Name& operator=(const Name&) = delete;
  ~Name() { unlink_shm(text); }
};

std::string segment_refusal(const std::string& name) {
  return message_of<core::CommError>([&] { ShmSegment::create(name, ShmLayout(2)); });
}

TEST(ShmSegment, IsSeenByAllThatOpenIt) {
  const Name name;
  const ShmSegment first = ShmSegment::create(name.text, ShmLayout(2));
  const ShmSegment second = ShmSegment::open(name.text, ShmLayout(2));
  first.slot(1, 0)[77] = std::byte{42};
  EXPECT_EQ(second.slot(1, 0)[77], std::byte{42});
  first.line(1, 1).step.value = 9;
  EXPECT_EQ(second.line(1, 1).step.value.load(), 9U);
}

TEST(ShmSegment, WithoutANameIsFoundByItsHandle) {
  auto first = ShmSegment::create_unnamed(ShmLayout(2));
  ASSERT_TRUE(first);
  const std::string handle = first->handle();
  const auto second = ShmSegment::open_handle(handle, ShmLayout(2));
  ASSERT_TRUE(second);
  first->slot(1, 0)[77] = std::byte{42};
  EXPECT_EQ(second->slot(1, 0)[77], std::byte{42});
  EXPECT_THROW(ShmSegment::open_handle(handle, ShmLayout(3)), core::CommError);
  // For those who can't see the process.
  const Name name;
  first->link(name.text);
  EXPECT_EQ(ShmSegment::open(name.text, ShmLayout(2)).slot(1, 0)[77], std::byte{42});
  EXPECT_EQ(message_of<core::CommError>([&] { first->link(name.text); }),
            core::join("dist.shm: shared memory ", name.text, " is in use by process ", getpid(),
                       "; end that job, or remove /dev/shm", name.text, " if nobody needs it"));
  first->close_handle();
  EXPECT_FALSE(ShmSegment::open_handle(handle, ShmLayout(2)));
}

TEST(ShmSegment, IsNotTakenForWhatAnotherProcessHasThere) {
  const auto own = ShmSegment::create_unnamed(ShmLayout(2));
  ASSERT_TRUE(own);
  const std::string pid = std::to_string(getpid());
  const std::string handle = own->handle();
  const std::string place = handle.substr(handle.find(' ', pid.size() + 1));
  for (const std::string& other : {pid + " 0" + place, "0 0" + place, handle + "0", pid, ""s}) {
    EXPECT_FALSE(ShmSegment::open_handle(other, ShmLayout(2))) << other;
  }
}

TEST(ShmSegment, KeepsItsPartsApart) {
  for (const int ranks : {2, 3, 8}) {
    const ShmLayout layout(ranks);
    std::vector<std::pair<size_t, size_t>> areas = {{0, sizeof(ShmHeader)}};
    for (int a = 0; a < ranks; ++a) {
      for (const uint64_t step : {0, 1}) {
        areas.emplace_back(layout.line_offset(a, step), sizeof(ShmLine));
        areas.emplace_back(layout.slot_offset(a, step), layout.slot_bytes());
        areas.emplace_back(layout.part_offset(a, step), layout.part_bytes());
      }
      for (int b = 0; b < ranks; ++b) {
        areas.emplace_back(layout.channel_offset(a, b),
                           sizeof(ShmChannel) + layout.channel_bytes());
      }
    }
    std::sort(areas.begin(), areas.end());
    for (size_t i = 0; i + 1 < areas.size(); ++i) {
      EXPECT_LE(areas[i].first + areas[i].second, areas[i + 1].first);
    }
    EXPECT_LE(areas.back().first + areas.back().second, layout.total_bytes());
    EXPECT_GE(layout.part_bytes() * static_cast<size_t>(ranks), layout.slot_bytes());
  }
}

TEST(ShmSegment, SaysWhoUsesTheName) {
  const Name name;
  const ShmSegment first = ShmSegment::create(name.text, ShmLayout(2));
  EXPECT_EQ(segment_refusal(name.text),
            core::join("dist.shm: shared memory ", name.text, " is in use by process ", getpid(),
                       "; end that job, or remove /dev/shm", name.text, " if nobody needs it"));
}

TEST(ShmSegment, LeavesMemoryOfOthersAlone) {
  const Name name;
  const core::FileDescriptor fd(shm_open(name.text.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600));
  ASSERT_EQ(ftruncate(fd.get(), 100'000), 0);
  EXPECT_NE(segment_refusal(name.text).find("is in use by another program"), std::string::npos);
}

TEST(ShmSegment, RemovesWhatADeadProcessHasLeft) {
  const Name name;
  const auto result = test::run_forked([&]() -> int {
    const ShmSegment segment = ShmSegment::create(name.text, ShmLayout(2));
    _exit(0);  // without cleaning up
  });
  ASSERT_EQ(result.status, 0);
  ASSERT_EQ(access(("/dev/shm" + name.text).c_str(), F_OK), 0);
  EXPECT_NO_THROW(ShmSegment::create(name.text, ShmLayout(2)));
}

TEST(ShmSegment, RefusesASegmentOfAnotherShape) {
  const Name name;
  const ShmSegment first = ShmSegment::create(name.text, ShmLayout(2));
  EXPECT_THROW(ShmSegment::open(name.text, ShmLayout(3)), core::CommError);
  EXPECT_THROW(ShmSegment::open(name.text + "-missing", ShmLayout(2)), core::CommError);
}

}  // namespace
}  // namespace weft::dist
