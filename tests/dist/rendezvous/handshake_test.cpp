#include "weft/dist/rendezvous/handshake.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <vector>

#include "tests/core/temp_dir.h"
#include "tests/support/run_command.h"
#include "weft/dist/launch/status_page.h"

namespace weft::dist {
namespace {

// In it rank 0's process number is that of its reader, as it may be in another container.
class NumbersOfAnother : public c10d::FileStore {
 public:
  using c10d::FileStore::FileStore;

  std::vector<uint8_t> get(const std::string& key) override {
    std::vector<uint8_t> value = FileStore::get(key);
    if (key != "weft/hello/0") return value;
    std::vector<std::string> fields(1);
    for (const uint8_t byte : value) {
      if (byte == ' ') fields.emplace_back();
      if (byte != ' ') fields.back() += static_cast<char>(byte);
    }
    fields.at(4) = std::to_string(getpid());
    std::string text;
    for (const std::string& field : fields) text += (text.empty() ? "" : " ") + field;
    return {text.begin(), text.end()};
  }
};

// Whether the rank has a status page once all have met.
bool meets_with_a_page(int rank, const c10::intrusive_ptr<c10d::Store>& store) {
  RankInfo info;
  info.rank = info.launcher_rank = info.local_rank = rank;
  info.size = info.local_size = 2;
  meet_ranks({nullptr, store, std::nullopt}, info, {"shm", {}}, std::chrono::seconds(30));
  return shared_status_page() != nullptr;
}

// Every number that rank 0's page may have is something else here.
void occupy_descriptors() {
  constexpr int kMost = 200;
  const int null = open("/dev/null", O_RDWR);
  for (int number = 3; number < kMost; ++number) {
    if (fcntl(number, F_GETFD) < 0) dup2(null, number);
  }
}

TEST(Handshake, TakesNoForeignDescriptorForTheStatusPage) {
  const testing::TempDir dir;
  test::BackgroundCommand first([&] {
    return meets_with_a_page(0, c10::make_intrusive<c10d::FileStore>(dir.at("store"), 2)) ? 0 : 1;
  });
  const auto second = test::run_forked([&] {
    occupy_descriptors();
    return meets_with_a_page(1, c10::make_intrusive<NumbersOfAnother>(dir.at("store"), 2)) ? 1 : 0;
  });
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_EQ(first.finish().status, 0);
}

}  // namespace
}  // namespace weft::dist
