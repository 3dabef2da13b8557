#include "weft/serve/chat/tool_family.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "weft/core/error.h"
#include "weft/serve/chat/harmony_answer.h"

namespace weft::serve {
namespace {

ToolFamily hermes() {
  return {.format = ToolFormat::kHermes,
          .shown_by = {{"<tool_call>"}},
          .form = CallForm::kObjects,
          .call_begin = "<tool_call>",
          .call_end = "</tool_call>",
          .object_heads = {{"{\"name\": \"", "\", \"arguments\": "},
                           {"{\"name\":\"", "\",\"arguments\":"}},
          .fence = "}",
          .between = "\n"};
}

ToolFamily llama() {
  return {.format = ToolFormat::kLlama,
          .shown_by = {{"<|python_tag|>"}, {"Environment: ipython"}},
          .form = CallForm::kObjects,
          .call_begin = "<|python_tag|>"};
}

ToolFamily mistral() {
  return {.format = ToolFormat::kMistral,
          .shown_by = {{"[TOOL_CALLS]"}},
          .form = CallForm::kObjects,
          .call_begin = "[TOOL_CALLS]",
          .heads = {{"", "[ARGS]"}, {"", "[CALL_ID]#[ARGS]"}},
          .id_begin = "[CALL_ID]",
          .id_end = "[ARGS]"};
}

ToolFamily harmony() {
  return {.format = ToolFormat::kHarmony,
          .shown_by = {{"<|start|>", "<|channel|>", "<|message|>"}},
          .form = CallForm::kChannels,
          .think_begin = "",
          .think_end = ""};
}

ToolFamily glm() {
  return {.format = ToolFormat::kGlm,
          .shown_by = {{"<tool_call>", "<arg_key>"}},
          .form = CallForm::kTagged,
          .call_begin = "<tool_call>",
          .call_end = "</tool_call>",
          .between = "\n",
          .tags = {.after_name = "\n",
                   .before_key = "<arg_key>",
                   .after_key = "</arg_key>",
                   .before_value = "<arg_value>",
                   .after_value = "</arg_value>",
                   .style = "glm_xml"}};
}

ToolFamily qwen_coder() {
  return {.format = ToolFormat::kQwenCoder,
          .shown_by = {{"<tool_call>", "<function=", "<parameter="}},
          .form = CallForm::kTagged,
          .call_begin = "<tool_call>",
          .call_end = "</tool_call>",
          .between = "\n",
          .tags = {.before_name = "<function=",
                   .after_name = ">",
                   .before_key = "<parameter=",
                   .after_key = ">",
                   .after_value = "</parameter>",
                   .end = "</function>",
                   .has_lines = true,
                   .style = "qwen_xml"}};
}

// V3 and R1 write the kind of tool and a fence; V3.1 does not.
ToolFamily deepseek(ToolFormat format) {
  ToolFamily family = {.format = format,
                       .shown_by = {{"<｜tool▁sep｜>"}},
                       .form = CallForm::kNamed,
                       .call_begin = "<｜tool▁call▁begin｜>",
                       .call_end = "<｜tool▁call▁end｜>",
                       .section_begin = "<｜tool▁calls▁begin｜>",
                       .section_end = "<｜tool▁calls▁end｜>",
                       .heads = {{"", "<｜tool▁sep｜>"}, {"function<｜tool▁sep｜>", "\n```json\n"}},
                       .fence = "```"};
  if (format != ToolFormat::kDeepSeek) return family;
  family.shown_by = {{"<｜tool▁sep｜>", "```json"}};
  std::swap(family.heads[0], family.heads[1]);
  family.between = "\n";
  return family;
}

ToolFamily kimi() {
  return {.format = ToolFormat::kKimi,
          .shown_by = {{"<|tool_call_begin|>", "<|tool_call_argument_begin|>"}},
          .form = CallForm::kNamed,
          .call_begin = "<|tool_call_begin|>",
          .call_end = "<|tool_call_end|>",
          .section_begin = "<|tool_calls_section_begin|>",
          .section_end = "<|tool_calls_section_end|>",
          .heads = {{"functions.", ":#<|tool_call_argument_begin|>"},
                    {"", ":#<|tool_call_argument_begin|>"},
                    {"functions.", "<|tool_call_argument_begin|>"}},
          .id_end = "<|tool_call_argument_begin|>"};
}

ToolFamily lfm2() {
  return {.format = ToolFormat::kLfm2,
          .shown_by = {{"<|tool_call_start|>"}, {"<|tool_list_start|>"}},
          .form = CallForm::kPython,
          .call_begin = "<|tool_call_start|>",
          .call_end = "<|tool_call_end|>"};
}

ToolFamily gemma4() {
  return {.format = ToolFormat::kGemma4,
          .shown_by = {{"<|tool_call>"}},
          .form = CallForm::kBraces,
          .call_begin = "<|tool_call>",
          .call_end = "<tool_call|>",
          .quote = "<|\"|>",
          .think_begin = "<|channel>thought",
          .think_end = "<channel|>"};
}

ToolFamily function_gemma() {
  return {.format = ToolFormat::kFunctionGemma,
          .shown_by = {{"<start_function_call>"}},
          .form = CallForm::kBraces,
          .call_begin = "<start_function_call>",
          .call_end = "<end_function_call>",
          .quote = "<escape>"};
}

ToolFamily phi4() {
  return {.format = ToolFormat::kPhi4,
          .shown_by = {{"<|tool_call|>"}, {"<|tool|>", "<|/tool|>"}},
          .form = CallForm::kObjects,
          .call_begin = "<|tool_call|>",
          .call_end = "<|/tool_call|>"};
}

ToolFamily command() {
  return {.format = ToolFormat::kCommand,
          .shown_by = {{"<|START_ACTION|>"}},
          .form = CallForm::kObjects,
          .call_begin = "<|START_ACTION|>",
          .call_end = "<|END_ACTION|>",
          .think_begin = "<|START_THINKING|>",
          .think_end = "<|END_THINKING|>"};
}

// What tokens may stand for on their own, in heads that have more.
constexpr std::string_view kHeadMarks[] = {"<｜tool▁sep｜>", "<|tool_call_argument_begin|>",
                                           "[ARGS]", "[CALL_ID]"};

bool has_in_head(const ToolFamily& family, std::string_view mark) {
  return std::ranges::any_of(family.heads, [&](const CallHead& head) {
    return head.before.find(mark) != head.before.npos || head.after.find(mark) != head.after.npos;
  });
}

}  // namespace

// A template belongs to the first whose words it has, so that what others have, too, comes last.
const std::vector<ToolFamily>& tool_families() {
  static const std::vector<ToolFamily> families = {
      harmony(), deepseek(ToolFormat::kDeepSeek),
      kimi(),    deepseek(ToolFormat::kDeepSeekV31),
      glm(),     qwen_coder(),
      lfm2(),    gemma4(),
      mistral(), function_gemma(),
      command(), phi4(),
      hermes(),  llama(),
  };
  return families;
}

const ToolFamily& tool_family(ToolFormat format) {
  for (const ToolFamily& family : tool_families()) {
    if (family.format == format) return family;
  }
  core::fail<core::InternalError>("serve: unknown format of tools");
}

std::vector<std::string_view> marks_of(const ToolFamily& family) {
  if (family.form == CallForm::kChannels) return harmony_marks();
  // Gemma's reasoning begins with a token and a word.
  const bool is_gemma = family.format == ToolFormat::kGemma4;
  std::vector<std::string_view> marks;
  for (const std::string_view text :
       {family.call_begin, family.call_end, family.section_begin, family.section_end, family.quote,
        is_gemma ? std::string_view("<|channel>") : family.think_begin, family.think_end,
        family.tags.before_key, family.tags.after_key, family.tags.before_value,
        family.tags.after_value, family.tags.end}) {
    // A single character is a text like any other.
    if (text.size() > 1) marks.push_back(text);
  }
  std::ranges::copy_if(kHeadMarks, std::back_inserter(marks),
                       [&](std::string_view mark) { return has_in_head(family, mark); });
  return marks;
}

}  // namespace weft::serve
