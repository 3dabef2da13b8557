// Which pages of a file a rank touches when none of them is in memory.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/io/views/plan_fixture.h"
#include "weft/core/files/file.h"

namespace weft::io {
namespace {

using testing::NamedType;
using testing::PlanFile;
using testing::weft_info;
using Pages = std::set<uint64_t>;

uint64_t page_size() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }

// The pages of a file that are in memory.
Pages cached_pages(const core::File& file) {
  void* mapping = ::mmap(nullptr, file.size(), PROT_READ, MAP_SHARED, file.descriptor(), 0);
  std::vector<unsigned char> present((file.size() + page_size() - 1) / page_size());
  Pages pages;
  if (mapping != MAP_FAILED && ::mincore(mapping, file.size(), present.data()) == 0) {
    for (size_t i = 0; i < present.size(); ++i) {
      if ((present[i] & 1) != 0) pages.insert(i);
    }
  }
  ::munmap(mapping, file.size());
  return pages;
}

// Whether the file's pages could be dropped: not those of a file system in memory.
bool drop(const core::File& file) {
  ::fsync(file.descriptor());
  ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  return cached_pages(file).empty();
}

Pages needed_pages(const ShardPlan& plan, int64_t rank) {
  Pages pages;
  for (const PlannedParam& param : plan.params()) {
    param.of(rank).file_view().for_each_run([&](const ByteRun& run) {
      const uint64_t last = (run.offset + run.num_bytes - 1) / page_size();
      for (uint64_t page = run.offset / page_size(); page <= last; ++page) pages.insert(page);
    });
  }
  return pages;
}

// These pages and no others. A few of them may have been dropped again for want of memory.
void expect_touched(const core::File& file, const Pages& needed) {
  const Pages touched = cached_pages(file);
  EXPECT_TRUE(std::ranges::includes(needed, touched));
  EXPECT_GE(static_cast<double>(touched.size()), 0.95 * static_cast<double>(needed.size()));
}

// Rows of several pages, of one, and of parts of one; long runs; pieces side by side.
const std::vector<NamedType> kLargeTensors = {
    {"wide", Dtype::kF32, {96, 16 * 1024}}, {"narrow", Dtype::kF16, {1500, 2048}},
    {"thin", Dtype::kU8, {4000, 512}},      {"rows", Dtype::kF32, {1200, 2048}},
    {"fused", Dtype::kF16, {900, 2048}},    {"whole", Dtype::kF32, {5000}},
};
constexpr char kCuts[] = R"("wide":[["shard",1]],"narrow":[["shard",1]],"thin":[["shard",1]],)"
                         R"("rows":[["shard",0]],"fused":[["shard_segments",0,[300,600]]])";

TEST(ReadPages, AreThoseOfTheRanksOwnBytesAlone) {
  const PlanFile source(kLargeTensors);
  const core::File file(source.file().path());
  for (const int64_t n : {1, 2, 4}) {
    const ShardPlan plan = source.plan(weft_info(kCuts), n);
    for (const int64_t rank : {int64_t{0}, n - 1}) {
      SCOPED_TRACE(core::join("rank ", rank, " of ", n));
      if (!drop(file)) GTEST_SKIP() << "files here always lie in memory";
      std::map<std::string, std::string> read;
      for (const PlannedParam& param : plan.params()) {
        read[param.name] = source.read(plan, param.name, rank);
      }
      const Pages needed = needed_pages(plan, rank);
      expect_touched(file, needed);
      if (n == 4) {
        const auto all = static_cast<double>(file.size() / page_size());
        EXPECT_LT(static_cast<double>(needed.size()), 0.5 * all);
      }
      EXPECT_TRUE(read["whole"] == source.bytes("whole"));
      for (const PlannedParam& param : plan.params()) {
        // Again, now out of memory.
        EXPECT_TRUE(source.read(plan, param.name, rank) == read[param.name]) << param.name;
      }
      expect_touched(file, needed);
    }
  }
}

// A rank beside another finds some pages in memory and reads the others.
TEST(ReadPages, OfSeveralRanksAddUp) {
  const PlanFile source(kLargeTensors);
  const core::File file(source.file().path());
  const ShardPlan plan = source.plan(weft_info(kCuts), 4);
  if (!drop(file)) GTEST_SKIP() << "files here always lie in memory";
  Pages needed;
  for (const int64_t rank : {1, 3, 0}) {
    for (const PlannedParam& param : plan.params()) source.read(plan, param.name, rank);
    needed.merge(needed_pages(plan, rank));
    expect_touched(file, needed);
  }
}

}  // namespace
}  // namespace weft::io
