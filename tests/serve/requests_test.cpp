#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "weft/core/error.h"
#include "weft/serve/api/access.h"
#include "weft/serve/api/api_error.h"
#include "weft/serve/api/completion_request.h"
#include "weft/serve/responses/response_request.h"

namespace weft::serve {
namespace {

using nlohmann::json;

// "400 param: message" of the error that `action` throws, or "no error".
template <class Action>
std::string refusal(Action&& action) {
  try {
    action();
  } catch (const ApiError& error) {
    const json param = error.json().at("error").at("param");
    return core::join(error.status(), " ", param.is_null() ? "-" : param.get<std::string>(), " ",
                      error.what());
  }
  return "no error";
}

json chat(const json& more = json::object()) {
  json body = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
  body.update(more);
  return body;
}

std::string chat_refusal(const json& more) {
  return refusal([&] { read_chat_request(chat(more), ""); });
}

TEST(CompletionRequest, IsReadWithOpenAIsDefaultsAndNames) {
  const CompletionRequest plain = read_chat_request(chat(), "");
  EXPECT_EQ(plain.messages.size(), 1U);
  EXPECT_EQ(plain.options.generate.sampler.temperature, 1);
  EXPECT_EQ(plain.num_choices, 1);
  EXPECT_EQ(plain.options.generate.num_logprobs, -1);
  EXPECT_FALSE(plain.max_tokens || plain.seed || plain.is_stream);
  const CompletionRequest full = read_chat_request(json::parse(R"({
    "model": "m", "n": 3, "stream": true, "stream_options": {"include_usage": true},
    "max_tokens": 5, "max_completion_tokens": 7, "temperature": 0, "top_p": 0.5, "top_k": -1,
    "min_p": 0.1, "seed": -4, "stop": ["a", "b"], "logprobs": true, "top_logprobs": 2,
    "user": "me", "tools": [], "response_format": {"type": "text"}, "presence_penalty": 0.0,
    "logit_bias": null, "best": 1,
    "messages": [{"role": "developer", "content": [{"type": "text", "text": "be "},
                                                   {"type": "text", "text": "brief"}]},
                 {"role": "assistant", "content": null}]})"),
                                                   "");
  EXPECT_EQ(full.model, "m");
  EXPECT_TRUE(full.is_stream && full.includes_usage);
  EXPECT_EQ(full.max_tokens, 7);
  EXPECT_EQ(full.seed, -4);
  EXPECT_EQ(full.options.generate.sampler.top_k, 0);
  EXPECT_EQ(full.options.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(full.options.generate.num_logprobs, 2);
  EXPECT_EQ(full.messages[0].role, "system");
  EXPECT_EQ(full.messages[0].content, "be brief");
  EXPECT_EQ(full.messages[1].content, "");
  EXPECT_EQ(full.unknown, std::vector<std::string>{"best"});
}

TEST(CompletionRequest, ReadsPenaltiesAndBiases) {
  const generate::SamplerOptions sampler = read_chat_request(chat({{"presence_penalty", 0.5},
                                                                   {"frequency_penalty", -2},
                                                                   {"repeat_penalty", 1.5},
                                                                   {"repeat_last_n", 64},
                                                                   {"logit_bias", {{"7", -100}}}}),
                                                             "")
                                               .options.generate.sampler;
  EXPECT_EQ(sampler.presence_penalty, 0.5);
  EXPECT_EQ(sampler.frequency_penalty, -2);
  EXPECT_EQ(sampler.repeat_penalty, 1.5);
  EXPECT_EQ(sampler.repeat_last_n, 64);
  ASSERT_EQ(sampler.logit_bias.size(), 1U);
  EXPECT_EQ(sampler.logit_bias[0].token, 7);
  EXPECT_EQ(sampler.logit_bias[0].bias, -100);
  EXPECT_EQ(chat_refusal({{"presence_penalty", 3}}),
            "400 presence_penalty presence_penalty: got 3, expected a number from -2 to 2");
  const std::string expected = "expected an object of token ids with numbers from -100 to 100";
  EXPECT_EQ(chat_refusal({{"logit_bias", {{"7", 101}}}}),
            "400 logit_bias logit_bias: member '7', " + expected);
  EXPECT_EQ(chat_refusal({{"logit_bias", {{"a", 1}}}}),
            "400 logit_bias logit_bias: member 'a', " + expected);
  EXPECT_EQ(chat_refusal({{"logit_bias", {1, 2}}}),
            "400 logit_bias logit_bias: " + expected + ", at most 4096 of them");
}

CompletionRequest read_chat(const std::string& members) {
  const std::string text = R"({"messages": [{"role": "user", "content": "Hi"}], )" + members + "}";
  return read_chat_request(json::parse(text), text);
}

TEST(CompletionRequest, GivesTemplatesTheEffortBesideOtherNames) {
  const auto names = [](const std::string& members) { return read_chat(members).template_names; };
  const std::string effort = R"("reasoning_effort": "low")";
  EXPECT_EQ(names(effort), "{" + effort + "}");
  EXPECT_EQ(names(effort + R"(, "chat_template_kwargs": {})"), "{" + effort + "}");
  EXPECT_EQ(names(effort + R"(, "chat_template_kwargs": {"b": 1, "a": 2})"),
            "{" + effort + R"(, "b": 1, "a": 2})");
  const std::string own = R"({"reasoning_effort": "high"})";
  EXPECT_EQ(names(effort + ", \"chat_template_kwargs\": " + own), own);
  EXPECT_FALSE(read_chat(R"("seed": -1)").seed) << "vLLM's way to say that there is none";
}

TEST(CompletionRequest, ReadsGrammarsInTheOrderOfTheirText) {
  const auto grammar = [](const std::string& members) {
    return *read_chat(members).options.grammar;
  };
  EXPECT_EQ(grammar(R"("response_format": {"type": "json_object"})").form,
            grammar::Form::kJsonObject);
  const std::string schema = R"({"type": "object", "properties": {"z": {}, "a": {}}})";
  EXPECT_EQ(grammar(R"("response_format": {"type": "json_schema", "json_schema": {"schema": )" +
                    schema + "}}"),
            (grammar::Source{grammar::Form::kJsonSchema, schema}));
  EXPECT_EQ(grammar(R"("structured_outputs": {"regex": "a+"})"),
            (grammar::Source{grammar::Form::kRegex, "a+"}));
  EXPECT_EQ(grammar(R"("grammar": "root ::= \"a\"")").form, grammar::Form::kEbnf);
  EXPECT_EQ(grammar(R"("structured_outputs": {"choice": ["a", "\"b"]})"),
            (grammar::Source{grammar::Form::kEbnf, R"(root ::= "a" | "\"b")"}));
  for (const std::string other : {R"("response_format": {"type": "json_object", "schema": )",
                                  R"("structured_outputs": {"json": )"}) {
    EXPECT_EQ(grammar(other + schema + "}"), (grammar::Source{grammar::Form::kJsonSchema, schema}));
  }
  EXPECT_EQ(grammar("\"json_schema\": " + schema),
            (grammar::Source{grammar::Form::kJsonSchema, schema}));
  EXPECT_FALSE(read_chat(R"("response_format": {"type": "text"})").options.grammar);
  const auto refused = [](const std::string& members) {
    return refusal([&] { read_chat(members); });
  };
  EXPECT_EQ(refused(R"("response_format": {"type": "xml"})"),
            "400 response_format.type response_format.type: got 'xml', expected text, json_object "
            "or json_schema");
  EXPECT_EQ(refused(R"("response_format": {"type": "json_object"}, "grammar": "x")"),
            "400 response_format response_format: beside another grammar, expected one; leave the "
            "other out");
  EXPECT_EQ(refused(R"("grammar": "x", "ignore_eos": true)"),
            "400 ignore_eos ignore_eos: with a grammar, whose texts end; leave one of them out");
  EXPECT_EQ(refused(R"("structured_outputs": {"xml": 1})"),
            "400 structured_outputs.xml structured_outputs.xml: unknown, expected json, regex, "
            "grammar or choice");
  EXPECT_EQ(refused(R"("structured_outputs": {"choice": []})"),
            "400 structured_outputs.choice structured_outputs.choice: no text, expected at least "
            "one");
}

TEST(CompletionRequest, ReadsToolsAndTheirCalls) {
  const std::string tool = R"({"type": "function", "function": {"name": "f", "strict": true,
      "parameters": {"type": "object", "properties": {"z": {"type": "null"}}}}})";
  const CompletionRequest request = read_chat(R"("tools": [)" + tool + R"(], "tool_choice":
      {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": false)");
  ASSERT_EQ(request.tools.size(), 1U);
  EXPECT_EQ(request.tools[0].json, tool);
  EXPECT_TRUE(request.tools[0].is_strict);
  EXPECT_TRUE(request.tools[0].parameters.starts_with("{\"type\": \"object\""));
  EXPECT_EQ(request.tool_choice.kind, ToolChoice::Kind::kRequired);
  EXPECT_EQ(request.tool_choice.name, "f");
  EXPECT_FALSE(request.tool_choice.is_parallel);
  EXPECT_TRUE(read_chat(R"("tools": [)" + tool + R"(], "tool_choice": "none")").tools.empty());
  const auto refused = [&](const std::string& members) {
    return refusal([&] { read_chat(members); });
  };
  EXPECT_EQ(refused(R"("tools": [{"type": "web"}])"),
            "400 tools[0].type tools[0].type: expected function; there are no other tools");
  EXPECT_EQ(refused(R"("tools": [{"function": {"name": "a b"}}])"),
            "400 tools[0].function.name tools[0].function.name: got 'a b', expected 1 to 64 "
            "letters, digits, _, - and .");
  EXPECT_EQ(refused(R"("tool_choice": "required")"),
            "400 tool_choice tool_choice: required without tools; give some");
  EXPECT_EQ(refused(R"("tool_choice": {"function": {"name": "g"}})"),
            "400 tool_choice tool_choice: the function 'g', expected one of tools");
  EXPECT_EQ(refused(R"("tools": [{"function": {"name": "f", "strict": true,
                       "parameters": {"not": {}}}}])"),
            "400 tools[0].function.parameters tools[0].function.parameters: schema: the keyword "
            "'not' is not supported");
  const auto messages =
      read_chat_request(
          {{"messages",
            {{{"role", "assistant"},
              {"content", nullptr},
              {"tool_calls",
               json::array({{{"id", "1"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}}})}},
             {{"role", "tool"}, {"tool_call_id", "1"}, {"content", "done"}}}}},
          "")
          .messages;
  EXPECT_EQ(messages[0].tool_calls.at(0).name, "f");
  EXPECT_EQ(messages[1].tool_call_id, "1");
}

TEST(CompletionRequest, RefusesWrongValuesByTheNameOfTheField) {
  const std::string range = "expected a whole number from 1 to ";
  EXPECT_EQ(chat_refusal({{"n", 1'000'000'000}}), "400 n n: got 1000000000, " + range + "8");
  EXPECT_EQ(chat_refusal({{"max_tokens", -1}}),
            "400 max_tokens max_tokens: got -1, " + range + "2147483647");
  EXPECT_EQ(chat_refusal({{"max_tokens", 2.5}}),
            "400 max_tokens max_tokens: got 2.5, " + range + "2147483647");
  EXPECT_EQ(chat_refusal({{"temperature", "hot"}}),
            "400 temperature temperature: got \"hot\", expected a number from 0 to 2");
  EXPECT_EQ(chat_refusal({{"top_p", 2}}), "400 top_p top_p: got 2, expected a number from 0 to 1");
  EXPECT_EQ(chat_refusal({{"stream", 1}}), "400 stream stream: got 1, expected true or false");
  EXPECT_EQ(chat_refusal({{"seed", 18446744073709551615U}}),
            "400 seed seed: got 18446744073709551615, expected a whole number from "
            "-9223372036854775808 to 9223372036854775807");
  EXPECT_EQ(chat_refusal({{"stop", ""}}), "400 stop stop: a text of 0 bytes, expected 1 to 256");
  EXPECT_EQ(chat_refusal({{"stop", 7}}),
            "400 stop stop: got 7, expected a string or at most 16 of them in a list");
  EXPECT_EQ(chat_refusal({{"model", json::array()}}), "400 model model: got [], expected a string");
  EXPECT_EQ(chat_refusal({{"top_logprobs", 3}}),
            "400 top_logprobs top_logprobs: needs logprobs: true");
  EXPECT_EQ(chat_refusal({{"stream", true}, {"stream_options", 5}}),
            "400 stream_options stream_options: expected an object");
  EXPECT_EQ(chat_refusal({{"tool_choice", {{"function", {{"name", 5}}}}}}),
            "400 tool_choice tool_choice: expected an object with a function's name");
  EXPECT_EQ(chat_refusal({{"messages", {{{"role", "user"}, {"content", {5}}}}}}),
            "400 messages[0].content messages[0].content: expected an object");
  EXPECT_EQ(chat_refusal({{"messages", "Hi"}}),
            "400 messages messages: expected a list of 1 to 4096 messages");
  EXPECT_EQ(chat_refusal({{"messages", {{{"role", "robot"}, {"content", ""}}}}}),
            "400 messages[0].role messages[0].role: got 'robot', expected system, user, "
            "assistant or tool");
  EXPECT_EQ(refusal([] { read_chat_request(json::array(), ""); }),
            "400 - the body is no JSON object");
}

TEST(CompletionRequest, RefusesWhatWouldChangeTheAnswer) {
  const std::string end = ": not supported by this server; leave it out";
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, json>>{{"functions", {1, 2}},
                                                 {"modalities", {"audio", "text"}},
                                                 {"guided_json", {{"type", "object"}}},
                                                 {"min_tokens", 3},
                                                 {"stop_token_ids", {2}},
                                                 {"continue_final_message", true}}) {
    EXPECT_EQ(chat_refusal({{name, value}}), "400 " + name + " " + name + end);
  }
  const auto complete = [](const json& more) {
    json body = {{"prompt", "a"}};
    body.update(more);
    return refusal([&] { read_completion_request(body, ""); });
  };
  EXPECT_EQ(complete({{"suffix", "a"}}), "400 suffix suffix" + end);
  EXPECT_EQ(complete({{"echo", true}, {"logprobs", 1}}),
            "400 echo echo: with logprobs, which are told of new tokens alone; leave one of them "
            "out");
  EXPECT_EQ(complete({{"echo", false}, {"best_of", 1}, {"suffix", ""}}), "no error");
  EXPECT_EQ(complete({{"prompt", nullptr}}), "400 prompt prompt: missing, expected a text");
  EXPECT_EQ(complete({{"prompt", {1, "a"}}}),
            "400 prompt prompt: expected a string, token ids, or a list of either");
}

TEST(CompletionRequest, TakesTextsAndTokensForPrompts) {
  const auto prompts = [](const json& prompt) {
    return read_completion_request({{"prompt", prompt}}, "").prompts;
  };
  using Tokens = std::vector<int64_t>;
  EXPECT_EQ(prompts("a"), std::vector<PromptInput>{"a"});
  EXPECT_EQ(prompts({1, 2}), (std::vector<PromptInput>{Tokens{1, 2}}));
  EXPECT_EQ(prompts({"a", "b"}), (std::vector<PromptInput>{"a", "b"}));
  EXPECT_EQ(prompts({{1}, {2, 3}}), (std::vector<PromptInput>{Tokens{1}, Tokens{2, 3}}));
}

ResponseRequest read_response(const std::string& members) {
  const std::string text = "{" + members + "}";
  return read_response_request(json::parse(text), text);
}

TEST(ResponseRequest, BecomesAChat) {
  const CompletionRequest plain = read_response(R"("input": "Hi", "instructions": "Be brief.",
      "max_output_tokens": 9, "temperature": 0.5, "store": true)")
                                      .completion;
  ASSERT_EQ(plain.messages.size(), 2U);
  EXPECT_EQ(plain.messages[0].role, "system");
  EXPECT_EQ(plain.messages[1].content, "Hi");
  EXPECT_EQ(plain.max_tokens, 9);
  EXPECT_EQ(plain.options.generate.sampler.temperature, 0.5);
  EXPECT_TRUE(plain.unknown.empty());
  const ResponseRequest full = read_response(R"("input": [
      {"role": "developer", "content": "a"},
      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "b"}]},
      {"type": "reasoning", "summary": []},
      {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "c"}]},
      {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "1", "output": "d"}],
      "tools": [{"type": "function", "name": "f", "parameters":
      {"type": "object", "properties": {"z": {"type": "null"}}}}],
      "tool_choice": {"type": "function", "name": "f"}, "best": 1, "metadata": {"k": "v"})");
  const CompletionRequest& chat = full.completion;
  ASSERT_EQ(chat.messages.size(), 4U);
  EXPECT_EQ(chat.messages[2].content, "c");
  EXPECT_EQ(chat.messages[2].tool_calls.at(0).name, "f");
  EXPECT_EQ(chat.messages[3].role, "tool");
  EXPECT_EQ(chat.messages[3].tool_call_id, "1");
  EXPECT_EQ(chat.tools.at(0).parameters,
            R"({"type": "object", "properties": {"z": {"type": "null"}}})");
  EXPECT_EQ(chat.tool_choice.name, "f");
  EXPECT_EQ(chat.unknown, std::vector<std::string>{"best"});
  EXPECT_EQ(full.echo.at("metadata").at("k"), "v");
  EXPECT_EQ(
      read_response(R"("input": "a", "reasoning": {"effort": "low"})").completion.template_names,
      R"({"reasoning_effort": "low"})");
  const std::string schema = R"({"type": "object", "properties": {"z": {}, "a": {}}})";
  EXPECT_EQ(read_response(R"("input": "a", "text": {"format": {"type": "json_schema", "schema": )" +
                          schema + "}}")
                .completion.options.grammar,
            (grammar::Source{grammar::Form::kJsonSchema, schema}));
}

TEST(ResponseRequest, RefusesByItsNameWhatIsNotDone) {
  const auto refused = [](const std::string& members) {
    return refusal([&] { read_response(members); });
  };
  const std::string end = ": not supported by this server; leave it out";
  for (const std::string member :
       {R"("previous_response_id": "resp_1")", R"("conversation": "c")", R"("background": true)",
        R"("truncation": "auto")", R"("include": ["message.output_text.logprobs"])"}) {
    const std::string name = member.substr(1, member.find('"', 1) - 1);
    EXPECT_EQ(refused(R"("input": "a", )" + member), "400 " + name + " " + name + end);
  }
  EXPECT_EQ(refused(R"("input": "a", "reasoning": {"effort": "low", "summary": "auto"})"),
            "400 reasoning.summary reasoning.summary: not supported, expected effort alone");
  EXPECT_EQ(refused(""), "400 input input: missing, expected a text or a list");
  EXPECT_EQ(refused(R"("input": [{"type": "item_reference", "id": "x"}])"),
            "400 input[0].type input[0].type: got 'item_reference', expected message, "
            "function_call, function_call_output or reasoning");
  EXPECT_EQ(refused(R"("input": [{"role": "user", "content": [{"type": "input_image"}]}])"),
            "400 input[0].content[0].type input[0].content[0].type: got 'input_image', expected "
            "input_text or output_text; this model reads nothing else");
  EXPECT_EQ(refused(R"("input": [{"role": "robot", "content": "a"}])"),
            "400 input[0].role input[0].role: got 'robot', expected user, assistant, system or "
            "developer");
  EXPECT_EQ(refused(R"("input": "a", "tools": [{"type": "web_search"}])"),
            "400 tools[0].type tools[0].type: got 'web_search', expected function; there are no "
            "other tools");
  EXPECT_EQ(refused(R"("input": "a", "text": {"format": {"type": "xml"}})"),
            "400 text.format.type text.format.type: got 'xml', expected text, json_object or "
            "json_schema");
  EXPECT_EQ(refused(R"("input": "a", "max_output_tokens": 0)"),
            "400 max_output_tokens max_output_tokens: got 0, expected a whole number from 1 to "
            "2147483647");
}

TEST(Access, IsForThoseWithAKeyAndForNoForeignPage) {
  AccessOptions open, keyed{{"one", "two"}, {"https://mine"}, false};
  const auto ask = [](const AccessOptions& options, HttpRequest request) {
    return refusal([&] { check_access(request, options, true); }).substr(0, 3);
  };
  const auto from = [](const std::string& host, const std::string& key = "",
                       const std::string& origin = "") {
    HttpRequest request;
    request.host = host;
    request.authorization = key;
    request.origin = origin;
    return request;
  };
  for (const char* own : {"localhost:8080", "127.0.0.1", "[::1]:80", ""}) {
    EXPECT_EQ(ask(open, from(own)), "no ") << own;
  }
  EXPECT_EQ(ask(open, from("evil.example:8080")), "403");
  EXPECT_EQ(ask(open, from("127.0.0.1.evil.example")), "403");
  EXPECT_EQ(ask(open, from("localhost", "", "https://evil")), "403");
  EXPECT_EQ(ask(keyed, from("any.example", "Bearer two")), "no ");
  EXPECT_EQ(ask(keyed, from("any.example", "Bearer two", "https://mine")), "no ");
  for (const char* wrong : {"", "Bearer ", "Bearer on", "Bearer onee", "one", "Basic one"}) {
    EXPECT_EQ(ask(keyed, from("any.example", wrong)), "401") << wrong;
  }
  EXPECT_EQ(client_of(from("a", "Bearer two"), keyed), 1U);
  EXPECT_EQ(client_of(from("a", "Bearer two"), open), 0U);
  EXPECT_TRUE(cors_fields(from("a", "", "https://evil"), keyed).empty());
  EXPECT_EQ(cors_fields(from("a", "", "https://mine"), keyed).front().second, "https://mine");
}

}  // namespace
}  // namespace weft::serve
