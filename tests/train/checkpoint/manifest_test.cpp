#include "weft/train/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>
#include <span>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "weft/core/hash.h"

namespace weft::train {
namespace {

using weft::testing::error_text;
using weft::testing::replaced;
using weft::testing::TempDir;

Manifest some_manifest() {
  Manifest manifest;
  manifest.step = 100;
  manifest.trainer = R"({"seed":[1,18446744073709551615]})";
  manifest.parameters["w"] = {{5, 3}, shard::make_layout({0, {}, 1}, 5, 2, "test")};
  manifest.parameters["norm"] = {{3}, {}};
  manifest.files.push_back(
      {"rank-0",
       1000,
       0xfedcba9876543210,
       {{"w", 1, {2, 4}, {"master", "exp_avg"}, {"row"}}, {"norm", 0, {0, 3}, {"master"}, {}}}});
  return manifest;
}

constexpr const char* kText =
    R"({"files":[{"bytes":1000,"hash":"fedcba9876543210","name":"rank-0","slices":)"
    R"([{"elements":[2,4],"model_rank":1,"name":"w","states":["master","exp_avg"],"whole_states":["row"]},)"
    R"({"elements":[0,3],"name":"norm","states":["master"]}]}],"format":"weft-checkpoint",)"
    R"("parameters":{"norm":{"sizes":[3]},"w":{"cut":{"dim":0,"ranges":[[[0,3]],[[3,2]]]},"sizes":[5,3]}},)"
    R"("step":100,"trainer":{"seed":[1,18446744073709551615]},"version":1})";

// The same as version 2, which has the hash of what stands without it.
std::string hashed_text() {
  const std::string plain = replaced(kText, R"("version":1)", R"("version":2)");
  char hash[32];
  std::snprintf(hash, sizeof hash, R"("hash":"%016)" PRIx64 R"(",)",
                core::hash_bytes(std::as_bytes(std::span(plain))));
  return replaced(plain, R"("parameters":)", hash + std::string(R"("parameters":)")) + "\n";
}

TEST(Manifest, IsJsonThatComesBackAsItWas) {
  EXPECT_EQ(to_text(some_manifest()), hashed_text());
  EXPECT_EQ(to_text(parse_manifest(hashed_text(), "m")), hashed_text());
  EXPECT_EQ(to_text(parse_manifest(kText, "m")), hashed_text()) << "version 1 has no hash";
  const Manifest manifest = parse_manifest(kText, "m");
  const Slice slice = manifest.slice(manifest.files[0].slices[0]);
  EXPECT_EQ(slice.cut->of(1), (std::vector<shard::Range>{{3, 2}}));
  EXPECT_EQ(slice.elements, (shard::Range{2, 4}));
}

TEST(Manifest, RefusesWhatItDoesNotKnowOrCannotBe) {
  const auto text = [](const std::string& from, const std::string& to) {
    return error_text([&] { parse_manifest(replaced(kText, from, to), "m"); });
  };
  EXPECT_EQ(text(R"("version":1)", R"("version":3)"),
            "FormatError: m: version: expected 1 to 2, got 3; use the weft that wrote it");
  EXPECT_EQ(text("weft-checkpoint", "other"),
            "FormatError: m: format: expected 'weft-checkpoint', got 'other'; give the folder of a "
            "checkpoint");
  EXPECT_EQ(text("[2,4]", "[2,5]"),
            "FormatError: m: 'rank-0': parameter 'w': 5 elements from 2 of a shard of 6");
  EXPECT_EQ(text("[2,4]", "[-1,4]"),
            "FormatError: m: 'rank-0': parameter 'w': 4 elements from -1 of a shard of 6");
  EXPECT_EQ(text(R"("model_rank":1)", R"("model_rank":2)"),
            "FormatError: m: 'rank-0': parameter 'w': model rank 2 of a cut for 2");
  EXPECT_EQ(text(R"("name":"norm")", R"("name":"nor")"),
            "FormatError: m: 'rank-0': parameter 'nor': is not among the parameters");
  EXPECT_EQ(text(R"("dim":0)", R"("dim":2)"),
            "FormatError: m: parameter 'w': a cut along dim 2 of 2");
  EXPECT_EQ(text("[5,3]}", "[4611686018427387904,3]}").substr(0, 47),
            "FormatError: m: 'rank-0': parameter 'w': sizes ");
  EXPECT_EQ(text(R"("rank-0")", R"("../rank-0")"),
            "FormatError: m: file 0: name: expected that of a file in the folder, got '../rank-0'");
  EXPECT_EQ(text("fedcba9876543210", "fedc"),
            "FormatError: m: file 0: hash: expected 16 hexadecimal digits, got 'fedc'");
  EXPECT_NE(text(R"("step":100)", R"("step":"x")"), "no error");
  EXPECT_NE(text("[[0,3]],[[3,2]]", "[[0,3]],[[3,1]]"), "no error");
  EXPECT_NE(text("[[0,3]],[[3,2]]", "[[0,3]],[[3,3]]"), "no error");
}

// Any byte may be wrong: it is refused or understood, never worse.
TEST(Manifest, SurvivesDamage) {
  const std::string text = kText;
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char byte : {'0', '9', '"', '[', '}', '\0', '-'}) {
      std::string damaged = text;
      damaged[i] = byte;
      try {
        parse_manifest(damaged, "m");
      } catch (const core::FormatError&) {
        continue;
      }
    }
    EXPECT_THROW(parse_manifest(text.substr(0, i), "m"), core::FormatError);
  }
}

TEST(Manifest, RefusesATextThatIsNotTheOneSaved) {
  const auto text = [](const std::string& from, const std::string& to) {
    return error_text([&] { parse_manifest(replaced(hashed_text(), from, to), "m"); });
  };
  const std::string refusal =
      "FormatError: m: its text is not the one that was saved (hash); take another checkpoint";
  EXPECT_EQ(text(R"("step":100)", R"("step":101)"), refusal);
  EXPECT_EQ(text(R"("seed":[1,)", R"("seed":[2,)"), refusal);
  EXPECT_EQ(text(R"("bytes":1000)", R"("bytes":1001)"), refusal);
  EXPECT_EQ(text(R"("hash":")", R"("hush":")"), "FormatError: m: missing key \"hash\"");
}

TEST(Manifest, ThatIsNotThereIsAnError) {
  const TempDir dir;
  EXPECT_EQ(replaced(error_text([&] { read_manifest(dir.path()); }), dir.path(), "DIR"),
            "FormatError: DIR/manifest.json: no such file; check the path");
}

TEST(Manifest, PartsOfRanksMustAgree) {
  Manifest all = some_manifest();
  Manifest part = some_manifest();
  add_part(all, part);
  EXPECT_EQ(all.files.size(), 2U);
  EXPECT_EQ(all.parameters.size(), 2U);
  part.parameters["norm"].sizes = {4};
  EXPECT_EQ(error_text([&] { add_part(all, part); }),
            "InternalError: train.save_checkpoint: parameter 'norm': ranks describe it otherwise");
}

}  // namespace
}  // namespace weft::train
