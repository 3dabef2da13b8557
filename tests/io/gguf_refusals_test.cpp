#include <gtest/gtest.h>

#include <string>

#include "tests/io/gguf_builder.h"
#include "tests/io/open_error.h"
#include "weft/core/error.h"

namespace weft::io {
namespace {

using testing::alignment_key;
using testing::expect_errors;
using testing::f32;
using testing::gguf_key;
using testing::gguf_text;
using testing::GgufBuilder;
using testing::GgufTensor;
using testing::kF32;
using testing::kQ8_0;
using testing::one;
using testing::raw;
using testing::second_at;

// A file with these keys and no tensor.
std::string keys(const std::vector<std::string>& keys) {
  GgufBuilder builder;
  builder.keys = keys;
  return builder.build();
}

TEST(GgufRefusals, OtherVersionsEachInItsWords) {
  const auto with = [](const std::string& magic, uint32_t version) {
    GgufBuilder builder;
    builder.magic = magic;
    builder.version = version;
    return builder.build();
  };
  expect_errors("m.gguf", {
                              {"empty", "",
                               "magic at byte 0: truncated: need 4 bytes, have 0; fetch or convert "
                               "the file again"},
                              {"3 bytes", "GGU",
                               "magic at byte 0: truncated: need 4 bytes, have 3; fetch or convert "
                               "the file again"},
                              {"7 bytes", "GGUF\3",
                               "version at byte 4: truncated: need 4 bytes, have 1; fetch or "
                               "convert the file again"},
                              {"magic", with("GGML", 3),
                               "bad magic 'GGML' at byte 0, expected 'GGUF'; give a GGUF file"},
                              {"magic reversed", with("FUGG", 3),
                               "bad magic 'FUGG' at byte 0, expected 'GGUF'; give a GGUF file"},
                              {"version 0", with("GGUF", 0),
                               "GGUF version 0 at byte 4, expected 2 or 3; use a version of weft "
                               "that knows it"},
                              {"version 1", with("GGUF", 1),
                               "GGUF version 1, expected 2 or 3; convert the model again"},
                              {"version 4", with("GGUF", 4),
                               "GGUF version 4 at byte 4, expected 2 or 3; use a version of weft "
                               "that knows it"},
                              {"big-endian 3", with("GGUF", 0x03000000),
                               "big-endian GGUF (version 3 in the other byte order), expected "
                               "little-endian; convert the model again"},
                              {"version 2^32 - 1", with("GGUF", UINT32_MAX),
                               "GGUF version 4294967295 at byte 4, expected 2 or 3; use a version "
                               "of weft that knows it"},
                          });
}

TEST(GgufRefusals, CountsBeforeItAllocates) {
  const auto counts = [](uint64_t num_tensors, uint64_t num_keys) {
    GgufBuilder builder;
    builder.num_tensors = num_tensors;
    builder.num_keys = num_keys;
    return builder.build();
  };
  expect_errors("m.gguf", {
                              {"keys 2^63", counts(0, uint64_t{1} << 63),
                               "number of keys at byte 16: got 9223372036854775808, "
                               "expected at most 65536; fetch or convert the file again"},
                              {"keys -1", counts(0, UINT64_MAX),
                               "number of keys at byte 16: got 18446744073709551615, "
                               "expected at most 65536; fetch or convert the file again"},
                              {"keys 65537", counts(0, 65'537),
                               "number of keys at byte 16: got 65537, expected at most "
                               "65536; fetch or convert the file again"},
                              {"keys 65536", counts(0, 65'536),
                               "number of keys at byte 24: truncated: need 917504 bytes, "
                               "have 8; fetch or convert the file again"},
                              {"tensors 2^63", counts(uint64_t{1} << 63, 0),
                               "number of tensors at byte 8: got 9223372036854775808, "
                               "expected at most 16777216; fetch or convert the file again"},
                              {"tensors -1", counts(UINT64_MAX, 0),
                               "number of tensors at byte 8: got 18446744073709551615, "
                               "expected at most 16777216; fetch or convert the file again"},
                              {"tensors 2^32", counts(uint64_t{1} << 32, 0),
                               "number of tensors at byte 8: got 4294967296, expected at "
                               "most 16777216; fetch or convert the file again"},
                              {"tensors 1000", counts(1000, 0),
                               "number of tensors at byte 16: truncated: need 24000 "
                               "bytes, have 16; fetch or convert the file again"},
                              {"a key too many", counts(0, 1),
                               "number of keys at byte 24: truncated: need 14 bytes, have "
                               "8; fetch or convert the file again"},
                          });
}

TEST(GgufRefusals, WrongKeys) {
  const std::string k = gguf_key("k", GgufType::kU8, "1");
  const std::string value = raw<uint32_t>(0) + "1" + std::string(64, '\0');
  expect_errors("m.gguf",
                {{"twice", keys({k, k}),
                  "key 'k' at byte 47: the key stands twice, expected once; "
                  "fetch or convert the file again"},
                 {"empty", keys({gguf_key("", GgufType::kU8, "1") + std::string(9, ' ')}),
                  "key at byte 24: key of 0 bytes, expected 1 to 65535; "
                  "fetch or convert the file again"},
                 {"not ASCII", keys({gguf_key("k\xc3\xa9", GgufType::kU8, "1")}),
                  "key at byte 24: key 'k\\xc3\\xa9' is not ASCII; fetch or "
                  "convert the file again"},
                 {"NUL", keys({gguf_key(std::string("k\0", 2), GgufType::kU8, "1")}),
                  "key at byte 24: key 'k\\x00' is not ASCII; fetch or "
                  "convert the file again"},
                 {"65536 bytes", keys({gguf_key(std::string(65'536, 'k'), GgufType::kU8, "1")}),
                  "key at byte 24: key of 65536 bytes, expected 1 to 65535; "
                  "fetch or convert the file again"},
                 {"length 2^64 - 1", keys({raw(UINT64_MAX) + value}),
                  "key at byte 24: key of 18446744073709551615 bytes, "
                  "expected 1 to 65535; fetch or convert the file again"},
                 {"length past the end", keys({raw<uint64_t>(1000) + value}),
                  "key at byte 32: truncated: need 1000 bytes, have 96; "
                  "fetch or convert the file again"}});
}

TEST(GgufRefusals, WrongAlignments) {
  expect_errors("m.gguf",
                {
                    {"alignment 0", keys({alignment_key(0)}),
                     "key 'general.alignment' at byte 57: alignment 0, expected "
                     "a power of two from 8 to 1048576; fetch or convert the file again"},
                    {"alignment 1", keys({alignment_key(1)}),
                     "key 'general.alignment' at byte 57: alignment 1, expected "
                     "a power of two from 8 to 1048576; fetch or convert the file again"},
                    {"alignment 3", keys({alignment_key(3)}),
                     "key 'general.alignment' at byte 57: alignment 3, expected "
                     "a power of two from 8 to 1048576; fetch or convert the file again"},
                    {"alignment 4", keys({alignment_key(4)}),
                     "key 'general.alignment' at byte 57: alignment 4, expected "
                     "a power of two from 8 to 1048576; fetch or convert the file again"},
                    {"alignment 12", keys({alignment_key(12)}),
                     "key 'general.alignment' at byte 57: alignment 12, "
                     "expected a power of two from 8 to 1048576; fetch or convert the file again"},
                    {"alignment 24", keys({alignment_key(24)}),
                     "key 'general.alignment' at byte 57: alignment 24, "
                     "expected a power of two from 8 to 1048576; fetch or convert the file again"},
                    {"alignment 2^31", keys({alignment_key(1U << 31)}),
                     "key 'general.alignment' at byte 57: alignment 2147483648, "
                     "expected a power of two from 8 to 1048576; fetch or convert the file again"},
                    {"alignment u64",
                     keys({gguf_key("general.alignment", GgufType::kU64, raw<uint64_t>(32))}),
                     "key 'general.alignment' at byte 49: type 10, expected 4 "
                     "(u32); fetch or convert the file again"},
                    {"alignment string",
                     keys({gguf_key("general.alignment", GgufType::kString, gguf_text("32"))}),
                     "key 'general.alignment' at byte 49: type 8, expected 4 "
                     "(u32); fetch or convert the file again"},
                    {"alignment twice", keys({alignment_key(32), alignment_key(64)}),
                     "key 'general.alignment' at byte 82: the key stands twice, "
                     "expected once; fetch or convert the file again"},
                });
}

TEST(GgufRefusals, WrongNames) {
  GgufBuilder twice;
  twice.tensors = {{"a", {4}, kF32, f32(4)}, {"b", {4}, kF32, f32(4)}, {"a", {4}, kF32, f32(4)}};
  expect_errors("m.gguf", {{"name of 64 bytes", one({std::string(64, 'n'), {4}, kF32, f32(4)}),
                            "tensor at byte 24: name of 64 bytes, expected at most 63; fetch or "
                            "convert the file again"},
                           {"name of 2^64 - 1",
                            [] {
                              GgufBuilder b;
                              b.num_tensors = 1;
                              return b.header() + raw(UINT64_MAX) + std::string(64, '\0');
                            }(),
                            "tensor at byte 24: name of 18446744073709551615 bytes, expected at "
                            "most 63; fetch or convert the file again"},
                           {"name with NUL", one({std::string("a\0b", 3), {4}, kF32, f32(4)}),
                            "tensor 'a\\x00b': a NUL byte in the name; convert the file again"},
                           {"same name", twice.build(),
                            "tensor 'a' is listed twice, expected unique names; convert the file "
                            "again"}});
}

TEST(GgufRefusals, WrongDimensions) {
  const auto dims = [](const std::vector<uint64_t>& dims, uint32_t type) {
    return one({"a", dims, type, f32(4)});
  };
  const auto num_dims = [](uint32_t count) {
    return one({"a", {4}, kF32, f32(64), std::nullopt, count});
  };
  expect_errors("m.gguf", {{"5 dims", num_dims(5),
                            "tensor 'a' at byte 33: 5 dimensions, expected at most 4; fetch or "
                            "convert the file again"},
                           {"2^32 - 1 dims", num_dims(UINT32_MAX),
                            "tensor 'a' at byte 33: 4294967295 dimensions, expected at most 4; "
                            "fetch or convert the file again"},
                           {"dim 0", dims({4, 0}, kF32),
                            "tensor 'a' at byte 33: dimension 1 is 0, expected 1 to 2^63 - 1; "
                            "fetch or convert the file again"},
                           {"first dim 0", dims({0}, kQ8_0),
                            "tensor 'a' at byte 33: dimension 0 is 0, expected 1 to 2^63 - 1; "
                            "fetch or convert the file again"},
                           {"dim -1", dims({4, UINT64_MAX}, kF32),
                            "tensor 'a' at byte 33: dimension 1 is 18446744073709551615, "
                            "expected 1 to 2^63 - 1; fetch or convert the file again"},
                           {"dim 2^63", dims({uint64_t{1} << 63}, kF32),
                            "tensor 'a' at byte 33: dimension 0 is 9223372036854775808, expected "
                            "1 to 2^63 - 1; fetch or convert the file again"},
                           {"2^63 - 1 times 2", dims({INT64_MAX, 2}, kF32),
                            "tensor 'a' at byte 57: the size of F32 [2, 9223372036854775807] "
                            "does not fit in 63 bits; fetch or convert the file again"},
                           {"product wraps to a small one",
                            dims({uint64_t{1} << 42, (uint64_t{1} << 22) + 1}, kF32),
                            "tensor 'a' at byte 57: the size of F32 [4194305, 4398046511104] "
                            "does not fit in 63 bits; fetch or convert the file again"},
                           {"bytes overflow", dims({SIZE_MAX / 4}, kF32),
                            "tensor 'a' at byte 49: the size of F32 [4611686018427387903] does "
                            "not fit in 63 bits; fetch or convert the file again"},
                           {"bytes overflow in 63 bits", dims({uint64_t{1} << 61}, kF32),
                            "tensor 'a' at byte 49: the size of F32 [2305843009213693952] does "
                            "not fit in 63 bits; fetch or convert the file again"}});
}

TEST(GgufRefusals, WrongTypes) {
  const auto dims = [](const std::vector<uint64_t>& dims, uint32_t type) {
    return one({"a", dims, type, f32(4)});
  };
  for (const uint32_t type : {4U, 5U, 31U, 999U}) {
    const std::string message = core::join(
        "tensor 'a' at byte 45: type ", type,
        ", expected one of F32 (0), F16 (1), Q4_0 (2), Q4_1 (3), Q5_0 (6), Q5_1 (7), Q8_0 (8), "
        "Q2_K to Q6_K (10 to 14), IQ2_XXS to IQ4_XS (16 to 23), I8 to F64 (24 to 28), IQ1_M (29), "
        "BF16 (30), TQ1_0 (34), TQ2_0 (35), MXFP4 (39); convert the model to one of these");
    expect_errors("m.gguf", {{"unknown type", dims({4}, type), message.c_str()}});
  }
  expect_errors("m.gguf",
                {
                    {"half a block", dims({48, 2}, kQ8_0),
                     "tensor 'a' at byte 57: rows of 48 elements, expected a multiple of "
                     "32 for Q8_0; fetch or convert the file again"},
                    {"half a K block", dims({128, 2}, 12),
                     "tensor 'a' at byte 57: rows of 128 elements, expected a multiple of "
                     "256 for Q4_K; fetch or convert the file again"},
                    {"half a grid block", dims({128, 2}, 23),
                     "tensor 'a' at byte 57: rows of 128 elements, expected a multiple of "
                     "256 for IQ4_XS; fetch or convert the file again"},
                });
}

TEST(GgufRefusals, WrongOffsets) {
  expect_errors("m.gguf",
                {
                    {"misaligned", second_at(40),
                     "tensor 'b': data offset 40 is not aligned after 'a', expected 32 "
                     "(alignment 32); fetch or convert the file again"},
                    {"gap", second_at(64),
                     "tensor 'b': data offset 64 leaves a gap after 'a', expected 32 "
                     "(alignment 32); fetch or convert the file again"},
                    {"overlap", second_at(0),
                     "tensor 'b': data offset 0 overlaps after 'a', expected 32 "
                     "(alignment 32); fetch or convert the file again"},
                    {"past the end", second_at(1 << 20),
                     "tensor 'b': data offset 1048576 leaves a gap after 'a', expected 32 "
                     "(alignment 32); fetch or convert the file again"},
                    {"wraps", second_at(UINT64_MAX - 15),
                     "tensor 'b': data offset 18446744073709551600 is not aligned after "
                     "'a', expected 32 (alignment 32); fetch or convert the file again"},
                    {"wraps when padded", second_at(UINT64_MAX - 31),
                     "tensor 'b': data offset 18446744073709551584 leaves a gap after "
                     "'a', expected 32 (alignment 32); fetch or convert the file again"},
                    {"first not at 0", one({"a", {4}, kF32, f32(4), 32}),
                     "tensor 'a': data offset 32 leaves a gap, expected 0 (alignment 32); "
                     "fetch or convert the file again"},
                    {"first misaligned", one({"a", {4}, kF32, f32(4), 1}),
                     "tensor 'a': data offset 1 is not aligned, expected 0 (alignment "
                     "32); fetch or convert the file again"},
                    {"data missing", one({"a", {1000}, kF32, f32(4)}),
                     "tensor 'a' at byte 64: truncated: need 4000 bytes, have 32; fetch "
                     "or convert the file again"},
                    {"data of 2^62", one({"a", {uint64_t{1} << 60}, kF32, f32(4)}),
                     "tensor 'a' at byte 64: truncated: need 4611686018427387904 bytes, "
                     "have 32; fetch or convert the file again"},
                });
}

}  // namespace
}  // namespace weft::io
