// An answer of a model to a request with tools, in any family's form: its parts are the same
// however it is cut, and calls are of functions that were given. The first two bytes choose the
// family and how the answer begins.
#include <algorithm>

#include "tests/fuzz/fuzz.h"
#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/serve/chat/answer_parser.h"
#include "weft/serve/chat/tool_family.h"

namespace {

using namespace weft;

serve::AnswerOptions options_of(uint8_t family, uint8_t flags) {
  const auto& families = serve::tool_families();
  serve::AnswerOptions options;
  options.format = families[family % families.size()].format;
  options.parses_calls = (flags & 1) == 0;
  options.begins_in_reasoning = (flags & 2) != 0;
  options.begins_in_calls = (flags & 4) != 0;
  options.functions = {"f", "g"};
  options.parameters = {R"({"properties": {"x": {"type": "string"}, "y": {"$ref": "#"}}})", ""};
  return options;
}

serve::AnswerPiece read_in_pieces(const serve::AnswerOptions& options, std::string_view text,
                                  size_t piece) {
  serve::AnswerParser parser(options);
  serve::AnswerPiece all;
  const auto add = [&](const serve::AnswerPiece& news) {
    all.content += news.content;
    all.reasoning += news.reasoning;
    serve::add_calls(news.calls, all.calls);
  };
  for (size_t at = 0; at < text.size(); at += piece) add(parser.push(text.substr(at, piece)));
  add(parser.finish());
  return all;
}

bool is_same(const serve::AnswerPiece& a, const serve::AnswerPiece& b) {
  return a.content == b.content && a.reasoning == b.reasoning &&
         std::ranges::equal(a.calls, b.calls, [](const auto& x, const auto& y) {
           return x.id == y.id && x.name == y.name && x.arguments == y.arguments;
         });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Longer answers have nothing that these do not.
  constexpr size_t kMostBytes = 2048;
  if (size < 2) return 0;
  const serve::AnswerOptions options = options_of(data[0], data[1]);
  const std::string text(reinterpret_cast<const char*>(data) + 2, std::min(size - 2, kMostBytes));
  const serve::AnswerPiece whole = read_in_pieces(options, text, text.size() + 1);
  for (const size_t piece : {1, 2, 7}) {
    testing::expect(is_same(read_in_pieces(options, text, piece), whole),
                    "an answer is the same however it is cut");
  }
  testing::expect(options.parses_calls || whole.calls.empty(), "calls come where there are tools");
  // Llama's objects with a mark name any function.
  for (const text::ToolCall& call : whole.calls) {
    testing::expect(options.format == serve::ToolFormat::kLlama || options.is_given(call.name),
                    "a call is of a function that was given");
  }
  return 0;
}
