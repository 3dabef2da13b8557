#include "weft/dist/store/health_board.h"

#include <gtest/gtest.h>

namespace weft::dist {
namespace {

using namespace std::chrono_literals;

HealthReport report(int rank, const std::string& host) {
  return {rank, host, "rank " + std::to_string(rank) + " (host " + host + ")",
          " during barrier #1"};
}

// Ranks 0 and 1 are on host a, which has the board, 2 and 3 on host b.
HealthBoard board_of_four() {
  HealthBoard board("a", 5s);
  for (const int rank : {0, 1, 2, 3}) board.beat(report(rank, rank < 2 ? "a" : "b"));
  return board;
}

void beat_for(HealthBoard& board, std::chrono::milliseconds time, const std::vector<int>& ranks) {
  for (auto passed = 0ms; passed < time; passed += 250ms) {
    for (const int rank : ranks) board.beat(report(rank, rank < 2 ? "a" : "b"));
    board.pass(250ms);
  }
}

TEST(HealthBoard, SaysNothingOfRanksThatBeatOrHaveLeft) {
  HealthBoard board = board_of_four();
  board.leave(3);
  beat_for(board, 60s, {0, 1, 2});
  EXPECT_EQ(board.verdict(), "");
  EXPECT_EQ(board.ended(), std::vector<int>{3});
}

TEST(HealthBoard, NamesARankThatIsSilentAlone) {
  HealthBoard board = board_of_four();
  beat_for(board, 5s, {0, 1, 2});
  EXPECT_EQ(board.verdict(), "");
  beat_for(board, 2s, {0, 1, 2});
  EXPECT_EQ(board.verdict(),
            "rank 3 (host b) has not answered for 5 s: stopped or stuck during barrier #1");
}

// The ranks of a host do not fall silent at the same instant.
TEST(HealthBoard, NamesAHostThatIsSilentAsAWhole) {
  HealthBoard board = board_of_four();
  beat_for(board, 500ms, {0, 1, 3});
  beat_for(board, 7s, {0, 1});
  EXPECT_EQ(board.verdict(), silence_between("b", "a", 5s));
  EXPECT_EQ(board.verdict(),
            "hosts a and b have not heard from each other for 5 s: one of them is cut off, stopped "
            "or stuck");
}

TEST(HealthBoard, TheFirstVerdictStays) {
  HealthBoard board = board_of_four();
  const int before = board.version();
  board.lose(2);
  EXPECT_NE(board.version(), before);
  board.propose("something else");
  board.lose(3);
  EXPECT_EQ(board.verdict(), "rank 2 (host b) was killed or has ended during barrier #1");
  EXPECT_EQ(board.ended(), (std::vector<int>{2, 3}));
}

TEST(HealthBoard, NeverMeansNever) {
  HealthBoard board("a", std::chrono::milliseconds::max());
  board.beat(report(2, "b"));
  board.pass(1h);
  EXPECT_EQ(board.verdict(), "");
}

}  // namespace
}  // namespace weft::dist
