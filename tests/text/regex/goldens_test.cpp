// What Oniguruma matches, see tools/make_regex_goldens.py.
#include "tests/text/goldens.h"

#include <gtest/gtest.h>

#include "weft/core/error.h"
#include "weft/text/regex/regex.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {
namespace {

using Offsets = std::vector<std::vector<size_t>>;

Offsets character_offsets(const Regex& regex, const std::string& text) {
  Offsets out;
  for (const Regex::Match& match : regex.find_all(text)) {
    const std::string_view view(text);
    out.push_back(
        {utf8_length(view.substr(0, match.begin)), utf8_length(view.substr(0, match.end))});
  }
  return out;
}

TEST(RegexGoldens, MatchWhatOnigurumaMatches) {
  size_t understood = 0, refused = 0;
  const core::Json golden = read_golden("regex.json");
  for (const auto& [pattern, cases] : golden.items()) {
    try {
      const Regex regex = Regex::parse(pattern, "t");
      for (const auto& item : cases) {
        Offsets expected;
        for (size_t i = 1; i < item.size(); ++i) {
          expected.push_back(item[i].get<std::vector<size_t>>());
        }
        EXPECT_EQ(character_offsets(regex, item[0].get<std::string>()), expected)
            << pattern << " in " << item[0];
      }
      ++understood;
    } catch (const core::ConfigError& error) {
      const std::string text = error.what();
      const bool is_known = text.find("empty") != text.npos || text.find("possessive") != text.npos;
      EXPECT_TRUE(is_known) << text;
      ++refused;
    }
  }
  EXPECT_GT(understood, refused);
}

}  // namespace
}  // namespace weft::text
