#include "weft/io/check_finite.h"

#include <gtest/gtest.h>

#include "tests/io/views/plan_fixture.h"

namespace weft::io {
namespace {

using testing::PlanFile;

std::string finite_error(Dtype dtype, const std::string& bytes) {
  const auto count = static_cast<int64_t>(bytes.size()) / info(dtype).block_bytes;
  const PlanFile file({{"w", dtype, {count}}}, {{"w", bytes}});
  return testing::replaced(testing::error_text([&] { check_finite(file.file()); }),
                           file.file().path(), "FILE");
}

// Of the 16 numbers with the highest exponent two are NaN, and there is no infinity.
TEST(CheckFinite, KnowsTheNanOfFloatsOfEightBits) {
  EXPECT_EQ(finite_error(Dtype::kF8E4M3, "\x7e\xfe\x78\xf8\x01"), "no error");
  for (const char* bytes : {"\x7e\x01\x7f", "\x7e\x01\xff"}) {
    EXPECT_EQ(finite_error(Dtype::kF8E4M3, bytes),
              "FormatError: FILE: tensor 'w': element 2, expected a finite number, got NaN or "
              "infinity; the file is damaged: get it anew");
  }
}

}  // namespace
}  // namespace weft::io
