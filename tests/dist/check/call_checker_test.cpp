#include "weft/dist/check/call_checker.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

namespace weft::dist {
namespace {

using Bytes = std::array<uint8_t, CallRecord::kBytes>;

Bytes record(const Call& call) {
  Bytes bytes;
  bytes.fill(0xff);
  CallRecord::write(call, bytes);
  return bytes;
}

TEST(CallRecord, CarriesTheWordsAndAHashOfWhatMustAgree) {
  const Bytes sum = record(call_of(OpKind::kAllReduce, "float32 [4, 8] sum"));
  EXPECT_EQ(CallRecord::text(sum), "float32 [4, 8] sum");
  EXPECT_EQ(CallRecord::agreed_hash(sum),
            CallRecord::agreed_hash(record(call_of(OpKind::kAllReduce, "float32 [4, 8] sum"))));
  EXPECT_NE(CallRecord::agreed_hash(sum),
            CallRecord::agreed_hash(record(call_of(OpKind::kReduce, "float32 [4, 8] sum"))));
  EXPECT_NE(CallRecord::agreed_hash(sum),
            CallRecord::agreed_hash(record(call_of(OpKind::kAllReduce, "float32 [8, 4] sum"))));
}

TEST(CallRecord, ComparesWholeWordsAndShowsWhatFits) {
  std::string text(5000, 'x');
  const Bytes one = record(call_of(OpKind::kAllReduce, text + "1"));
  const Bytes two = record(call_of(OpKind::kAllReduce, text + "2"));
  EXPECT_NE(CallRecord::agreed_hash(one), CallRecord::agreed_hash(two));
  EXPECT_EQ(CallRecord::text(one), text.substr(0, CallRecord::kBytes - sizeof(uint64_t) - 1));
}

TEST(Call, NamesTypesAsCheckpointsDo) {
  EXPECT_EQ(tensor_text(at::zeros({4, 8}, at::kBFloat16)), "bfloat16 [4, 8]");
  EXPECT_EQ(tensor_text(at::zeros({}, at::kLong)), "int64 []");
  EXPECT_EQ(tensor_text(at::Tensor()), "no tensor");
  EXPECT_EQ(tensors_text({at::zeros({1}), at::zeros({2}, at::kHalf)}), "float32 [1], float16 [2]");
}

}  // namespace
}  // namespace weft::dist
