#include "weft/quant/scheme.h"

#include <gtest/gtest.h>

#include "tests/quant/quant_cases.h"
#include "weft/core/error.h"

namespace weft::quant {
namespace {

using core::ConfigError;
using test::message_of;

TEST(Scheme, TextIsReadBack) {
  const std::vector<std::pair<Scheme, std::string>> cases = {
      {{Mode::kAffine, 4, 64}, "affine 4-bit g64"},
      {{Mode::kAffine, 3, 128}, "affine 3-bit g128"},
      {{Mode::kMxfp4, 4, 32}, "mxfp4"},
      {{Mode::kMxfp8, 8, 32}, "mxfp8"},
      {{Mode::kNvfp4, 4, 16}, "nvfp4"}};
  for (const auto& [scheme, text] : cases) {
    EXPECT_EQ(scheme_text(scheme), text);
    EXPECT_EQ(parse_scheme(text, "here"), scheme) << text;
  }
  EXPECT_EQ(scheme_text({Mode::kMxfp4, 4, 16}), "mxfp4 g16");
}

TEST(Scheme, TakesTheModesOwnForWhatIsLeftOut) {
  EXPECT_EQ(parse_scheme("affine", "here"), (Scheme{Mode::kAffine, 4, 64}));
  EXPECT_EQ(parse_scheme("affine g32 8-bit", "here"), (Scheme{Mode::kAffine, 8, 32}));
  EXPECT_EQ(make_scheme(Mode::kMxfp8, 0, 32, "here"), (Scheme{Mode::kMxfp8, 8, 32}));
  EXPECT_EQ(make_scheme(Mode::kAffine, 6, 0, "here"), (Scheme{Mode::kAffine, 6, 64}));
}

TEST(Scheme, RefusesWhatTheModeDoesNotHave) {
  const auto message = [](Mode mode, int64_t bits, int64_t group_size) {
    return message_of<ConfigError>([&] { make_scheme(mode, bits, group_size, "quantize"); });
  };
  EXPECT_EQ(message(Mode::kMxfp4, 8, 0),
            "quantize: mxfp4, expected 4 bits in groups of 32, got 8 bits in groups of 32; leave "
            "both out, or use mode affine");
  EXPECT_EQ(message(Mode::kAffine, 7, 0),
            "quantize: bits, expected one of 2, 3, 4, 5, 6, 8, got 7; choose one of these");
  EXPECT_EQ(message(Mode::kAffine, 4, -1),
            "quantize: group size, expected a positive number, got -1; use 32, 64 or 128");
}

TEST(Scheme, RefusesTextItDoesNotKnow) {
  const auto message = [](const std::string& text) {
    return message_of<ConfigError>([&] { parse_scheme(text, "config"); });
  };
  EXPECT_EQ(message("int4"),
            "config: mode, expected one of affine, mxfp4, mxfp8, nvfp4, got 'int4'; name one of "
            "these");
  EXPECT_EQ(message("affine 4-bits"),
            "config: '4-bits', expected a number of bits as 4-bit or a group size as g64");
  for (const char* text :
       {"affine g", "affine g0", "affine -bit", "affine g6x", "affine g99999999999999999999"}) {
    EXPECT_NE(message(text).find("expected a number of bits"), std::string::npos) << text;
  }
  EXPECT_NE(message("").find("got ''"), std::string::npos);
}

}  // namespace
}  // namespace weft::quant
