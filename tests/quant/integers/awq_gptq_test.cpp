#include "weft/quant/integers/awq_gptq.h"

#include "tests/quant/quant_cases.h"
#include "weft/core/error.h"

namespace weft::quant {
namespace {

using core::ConfigError;
using core::ShapeError;
using test::Golden;
using test::message_of;

constexpr int64_t kIn = 64;
constexpr int64_t kOut = 32;
constexpr int64_t kGroups = 2;

/// A golden file: a matrix as its tensors, and its values [out, in].
struct Words {
  at::Tensor qweight, qzeros, scales, values;
};

Words words_of(const std::string& name, at::IntArrayRef qweight, int64_t bits) {
  Golden golden(name);
  Words words;
  words.qweight = golden.take(qweight, at::kInt);
  words.qzeros = golden.take({kGroups, kOut * bits / 32}, at::kInt);
  words.scales = golden.take({kGroups, kOut}, at::kHalf);
  words.values = golden.take({kOut, kIn}, at::kFloat);
  EXPECT_TRUE(golden.is_at_end());
  return words;
}

Words awq_words() { return words_of("awq.bin", {kIn, kOut / 8}, 4); }

Words gptq_words(const std::string& kind, int64_t bits) {
  return words_of("gptq_" + kind + ".bin", {kIn * bits / 32, kOut}, bits);
}

TEST(FromAwq, GivesThePublishedValuesExactly) {
  const Words words = awq_words();
  const auto w = from_awq(words.qweight, words.qzeros, words.scales);
  check_affine(w, "awq");
  EXPECT_EQ(w.group_size, kIn / kGroups);
  EXPECT_TRUE(at::equal(dequantize(w, at::kFloat), words.values));
}

TEST(FromAwq, TakesARanksRowsAndColumns) {
  const Words words = awq_words();
  // Columns 8 to 24, and the rows 16 to 48, which cut both quant groups in halves.
  const auto columns = [](const at::Tensor& part, int64_t per_word) {
    return part.narrow(1, 8 / per_word, 16 / per_word);
  };
  const auto w = from_awq(columns(words.qweight, 8).narrow(0, 16, 32), columns(words.qzeros, 8),
                          columns(words.scales, 1));
  EXPECT_EQ(w.group_size, 16);
  EXPECT_TRUE(
      at::equal(dequantize(w, at::kFloat), words.values.narrow(0, 8, 16).narrow(1, 16, 32)));
}

TEST(FromAwq, TakesSizesThatFillNoBlock) {
  at::manual_seed(1);
  const auto qweight = at::randint(INT32_MAX, {258, 17}, at::kInt);
  const auto qzeros = at::zeros({1, 17}, at::kInt), scales = at::ones({1, 17 * 8});
  const auto values = dequantize(from_awq(qweight, qzeros, scales), at::kFloat);
  ASSERT_EQ(values.sizes(), (std::vector<int64_t>{17 * 8, 258}));
  // The fourth column of a word is in its sixth nibble.
  const auto nibble = qweight.bitwise_right_shift(20).bitwise_and(15);
  EXPECT_TRUE(at::equal(values.unflatten(0, {17, 8}).select(1, 3), nibble.t().to(at::kFloat)));
}

TEST(FromAwq, NamesWhatDoesNotFit) {
  const Words words = awq_words();
  EXPECT_EQ(message_of<ShapeError>([&] { from_awq(words.scales, words.qzeros, words.scales); }),
            "quant.from_awq: qweight, expected an int32 matrix, got [2, 32] of Half; check that "
            "the file is in this format");
  EXPECT_EQ(message_of<ShapeError>(
                [&] { from_awq(words.qweight, words.qzeros, words.scales.narrow(1, 0, 16)); }),
            "quant.from_awq: scales, expected a floating matrix [groups, 32], got [2, 16] of Half; "
            "take the same columns of all parts");
  EXPECT_EQ(message_of<ShapeError>([&] {
              from_awq(words.qweight.narrow(0, 0, 62), words.qzeros, at::ones({3, kOut}));
            }),
            "quant.from_awq: scales, expected a divisor of the 62 rows of the matrix as number of "
            "quant groups, got 3; repeat the scales of the groups that are cut");
  EXPECT_EQ(message_of<ShapeError>(
                [&] { from_awq(words.qweight, words.qzeros.narrow(0, 0, 1), words.scales); }),
            "quant.from_awq: qzeros, expected shape [2, 4] (that of scales in words), got [1, 4]; "
            "take the same rows and columns of all parts");
  EXPECT_EQ(message_of<ShapeError>(
                [&] { from_awq(words.qweight.narrow(0, 0, 3), words.qzeros, words.scales); }),
            "quant.from_awq: qweight, expected an even number of rows, got 3; cut at a multiple of "
            "2");
}

struct GptqCase {
  const char* kind;
  GptqOptions options;
};

class FromGptq : public ::testing::TestWithParam<GptqCase> {};

TEST_P(FromGptq, GivesThePublishedValuesExactly) {
  const auto& [kind, options] = GetParam();
  const Words words = gptq_words(kind, options.bits);
  const auto w = from_gptq(words.qweight, words.qzeros, words.scales, options);
  check_affine(w, "gptq");
  EXPECT_EQ(w.bits, options.bits);
  EXPECT_EQ(w.group_size, kIn / kGroups);
  EXPECT_EQ(w.is_symmetric(), options.is_symmetric);
  EXPECT_TRUE(at::equal(dequantize(w, at::kFloat), words.values));
}

TEST_P(FromGptq, TakesRowsThatCutAQuantGroup) {
  const auto& [kind, options] = GetParam();
  const Words words = gptq_words(kind, options.bits);
  const int64_t half = words.qweight.size(0) / 2;
  // The first half is one quant group; its scales come twice.
  const auto w =
      from_gptq(words.qweight.narrow(0, 0, half), words.qzeros.narrow(0, 0, 1).repeat({2, 1}),
                words.scales.narrow(0, 0, 1).repeat({2, 1}), options);
  EXPECT_EQ(w.group_size, 16);
  EXPECT_TRUE(at::equal(dequantize(w, at::kFloat), words.values.narrow(1, 0, kIn / 2)));
}

INSTANTIATE_TEST_SUITE_P(
    AllKinds, FromGptq,
    ::testing::Values(GptqCase{"b2", {2}}, GptqCase{"b3", {3}}, GptqCase{"b4", {4}},
                      GptqCase{"b8", {8}}, GptqCase{"v2", {4, false}},
                      GptqCase{"sym", {4, true, true}}, GptqCase{"sym", {4, true, false}}),
    [](const auto& info) { return info.param.kind + std::to_string(info.index); });

// gptqmodel takes one off each word's codes at once, so that a 0 borrows from the next one.
TEST(FromGptq, GivesBackWhatZeroPointsOfZeroBorrowed) {
  const std::pair<int64_t, int64_t> kOnes[] = {{2, 0x55555555}, {4, 0x11111111}, {8, 0x01010101}};
  for (const auto& [bits, ones] : kOnes) {
    const Words words = gptq_words("b" + std::to_string(bits), bits);
    // The first and the last but one code of each word.
    const int64_t code = (int64_t{1} << bits) - 1;
    const at::Tensor plain =
        words.qzeros.bitwise_and(~(code | code << (32 - 2 * bits))).to(at::kInt);
    const at::Tensor less = (plain.to(at::kLong) - ones).to(at::kInt);
    const auto got = from_gptq(words.qweight, less, words.scales, {bits, true});
    const auto expected = from_gptq(words.qweight, plain, words.scales, {bits, false});
    EXPECT_TRUE(at::equal(got.offsets, expected.offsets)) << bits;
    EXPECT_TRUE(expected.offsets.eq(0).any().item<bool>()) << bits;
  }
}

TEST(FromGptq, NamesWhatDoesNotFit) {
  const Words words = gptq_words("b4", 4);
  const auto convert = [&](const GptqOptions& options) {
    return message_of<ShapeError>(
        [&] { from_gptq(words.qweight, words.qzeros, words.scales, options); });
  };
  EXPECT_EQ(convert({5}),
            "quant.from_gptq: bits, expected one of 2, 3, 4, 8, got 5; check the file's config");
  EXPECT_EQ(convert({3}),
            "quant.from_gptq: qweight, expected columns of whole 3-bit codes, got 8 words; cut at "
            "a multiple of 3");
  EXPECT_EQ(convert({8}),
            "quant.from_gptq: qzeros, expected shape [2, 8] (that of scales in words), got [2, 4]; "
            "take the same rows and columns of all parts");
}

TEST(FromGptq, RefusesZeroPointsThatAreNotTheMiddle) {
  const Words words = gptq_words("sym", 4);
  EXPECT_EQ(message_of<ShapeError>([&] {
              from_gptq(words.qweight, words.qzeros, words.scales, {4, false, true});
            }),
            "quant.from_gptq: zero point [0, 0], expected 8 (symmetric), got 7; check \"sym\" and "
            "\"checkpoint_format\" of the file's config");
}

TEST(CheckTrivialGIdx, TakesOnlyTheOrderOfTheRows) {
  const auto order = at::arange(96, at::kInt).floor_divide(32).to(at::kInt);
  EXPECT_NO_THROW(check_trivial_g_idx(order, 0, 32, "here"));
  EXPECT_NO_THROW(check_trivial_g_idx(order.narrow(0, 40, 30), 40, 32, "here"));
  auto act_order = order.clone();
  act_order[50] = 0;
  EXPECT_EQ(message_of<ConfigError>([&] { check_trivial_g_idx(act_order, 0, 32, "a.g_idx"); }),
            "a.g_idx: g_idx of row 50, expected quant group 1 (groups of 32 neighbours), got 0; "
            "say \"desc_act\" in the file's config.json if it was made with act-order");
  EXPECT_EQ(message_of<ShapeError>([&] { check_trivial_g_idx(order.to(at::kLong), 0, 32, "a"); }),
            "a: g_idx, expected int32 [rows], got [96] of Long; check that the file is in this "
            "format");
  EXPECT_EQ(message_of<ShapeError>([&] { check_trivial_g_idx(order, 0, 0, "a"); }),
            "a: group size, expected a positive number, got 0; check the file's config");
}

}  // namespace
}  // namespace weft::quant
