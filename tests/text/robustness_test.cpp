// Random damage to templates, with a fixed seed: whatever comes in, only weft's errors come out.
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "tests/text/goldens.h"
#include "weft/core/error.h"
#include "weft/text/chat_template.h"

namespace weft::text {
namespace {

constexpr const char* kFragments[] = {"{{",
                                      "}}",
                                      "{%",
                                      "%}",
                                      "{#",
                                      "#}",
                                      "{%-",
                                      "-%}",
                                      "{% endif %}",
                                      "{% endfor %}",
                                      "{% for x in ",
                                      "{% if ",
                                      "{% else %}",
                                      "{% set ",
                                      "{% macro m(a) %}",
                                      "{% endmacro %}",
                                      "{% raw %}",
                                      "{% endraw %}",
                                      "{% break %}",
                                      "(",
                                      ")",
                                      "[",
                                      "]",
                                      "{",
                                      "}",
                                      "|",
                                      ".",
                                      ",",
                                      ":",
                                      "=",
                                      "==",
                                      "~",
                                      "+",
                                      "-",
                                      "*",
                                      "**",
                                      "//",
                                      "%",
                                      "'",
                                      "\"",
                                      "\\",
                                      " is ",
                                      " not ",
                                      " in ",
                                      " if ",
                                      " else ",
                                      " and ",
                                      "loop",
                                      "loop.cycle",
                                      "messages",
                                      "message['content']",
                                      "[::-1]",
                                      "[1:]",
                                      "namespace(a=1)",
                                      "ns.a",
                                      "none",
                                      "true",
                                      "0",
                                      "-1",
                                      "9223372036854775807",
                                      "1e308",
                                      "1.5",
                                      "range(",
                                      "dict(",
                                      "|tojson",
                                      "|list",
                                      "|sort",
                                      "|map('upper')",
                                      "|selectattr('role')",
                                      "|join(',')",
                                      "|replace('a', 'bb')",
                                      "|indent",
                                      "|int",
                                      "|round(2)",
                                      "|unique",
                                      "|first",
                                      "|reverse",
                                      "|batch",
                                      ".split('a')",
                                      ".strip()",
                                      ".items()",
                                      ".get(",
                                      ".x",
                                      "raise_exception(",
                                      "'x' * 99999",
                                      "é",
                                      "\xFF",
                                      "\n",
                                      "  ",
                                      "caller()",
                                      "varargs",
                                      "{% call m() %}",
                                      "{% filter upper %}",
                                      "{% generation %}"};

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  size_t below(size_t n) { return random_() % n; }

  std::string mutate(std::string text) {
    for (size_t change = 1 + below(5); change > 0; --change) {
      const size_t at = below(text.size() + 1);
      const size_t size = std::min(below(12), text.size() - at);
      switch (below(5)) {
        case 0:
          text.erase(at, size);
          break;
        case 1:
          text.insert(at, text.substr(below(text.size() + 1), below(40)));
          break;
        case 2:
          if (at < text.size()) text[at] = static_cast<char>(random_());
          break;
        default:
          text.insert(at, kFragments[below(std::size(kFragments))]);
      }
    }
    return text;
  }

 private:
  std::mt19937 random_;
};

std::vector<std::string> seeds() {
  std::vector<std::string> sources;
  const core::Json cases = read_golden("chat_cases.json");
  for (const auto& snippet : cases.at("snippets")) sources.push_back(snippet[0].get<std::string>());
  for (const auto& [name, outputs] : cases.at("templates").items()) {
    std::ifstream file(golden_folder() + "/templates/" + name + ".jinja", std::ios::binary);
    sources.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return sources;
}

TEST(Robustness, MutatedTemplatesThrowOnlyWeftsErrors) {
  const std::vector<std::string> sources = seeds();
  const ChatTemplate::Inputs inputs{.messages = {{"user", "a b\n"}, {"assistant", "<think>é"}},
                                    .bos_token = "<s>",
                                    .eos_token = "</s>"};
  Mutator mutator(5);
  size_t refused = 0;
  size_t rendered = 0;
  const char* more = std::getenv("WEFT_TEXT_ROUNDS");
  const int rounds = more != nullptr ? std::atoi(more) : 8000;
  for (int round = 0; round < rounds; ++round) {
    const std::string source = mutator.mutate(sources[mutator.below(sources.size())]);
    try {
      const auto pieces = ChatTemplate::parse(source, "t").render(inputs);
      for (const ChatPiece& piece : pieces) ASSERT_FALSE(piece.text.empty());
      ++rendered;
    } catch (const core::ConfigError&) {
      ++refused;
    } catch (const core::FormatError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, static_cast<size_t>(rounds) / 10);
  EXPECT_GT(rendered, static_cast<size_t>(rounds) / 10);
}

}  // namespace
}  // namespace weft::text
