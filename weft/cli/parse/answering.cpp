// Flags that say what an answer is: how long, how it is drawn, what it must be.
#include <algorithm>
#include <array>
#include <charconv>

#include "weft/cli/flags.h"
#include "weft/core/error.h"
#include "weft/core/files/file.h"

namespace weft::cli {
namespace {

using core::check;
using core::ConfigError;

// "15043=-2", or "15043-2" as llama.cpp has it.
generate::TokenBias parse_bias(const std::string& text) {
  generate::TokenBias bias;
  const char* const end = text.data() + text.size();
  const auto id = std::from_chars(text.data(), end, bias.token);
  const char* value = id.ptr;
  const bool has_sign = value != end && (*value == '-' || *value == '+' || *value == '=');
  if (has_sign && *value != '-') ++value;
  if (has_sign && value != end && *value == '+') ++value;
  const auto number = std::from_chars(value, end, bias.bias);
  check<ConfigError>(
      id.ec == std::errc() && has_sign && number.ec == std::errc() && number.ptr == end,
      "--logit-bias: '", text,
      "', expected a token's id and what is added to its "
      "logit, like 15043=-2.5");
  return bias;
}

void add_penalty_flags(CLI::App& app, generate::SamplerOptions& options) {
  app.add_option("--repeat-penalty,--repetition-penalty", options.repeat_penalty,
                 "divides logits of tokens that prompt or answer have; 1: none (default: 1)");
  app.add_option("--repeat-last-n", options.repeat_last_n,
                 "how many of the last tokens --repeat-penalty looks at; -1: all (default: -1)")
      ->check(whole_number(-1, INT32_MAX));
  app.add_option("--presence-penalty", options.presence_penalty,
                 "taken from the logits of tokens that the answer has, -2 to 2 (default: 0)");
  app.add_option("--frequency-penalty", options.frequency_penalty,
                 "taken from a token's logit as often as the answer has it, -2 to 2 (default: 0)");
  app.add_option_function<std::vector<std::string>>(
         "-l,--logit-bias",
         [&options](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) options.logit_bias.push_back(parse_bias(text));
         },
         "ID=BIAS: added to a token's logit, -100 to 100; may be given several times (default: "
         "none)")
      ->allow_extra_args(false);
}

// --temp, --top-k, --top-p, --min-p, --seed and penalties.
void add_sampler_flags(CLI::App& app, generate::SamplerOptions& options) {
  app.add_option("--temp,--temperature", options.temperature,
                 "randomness; 0 takes the likeliest token (default: 0)");
  app.add_option("--top-k", options.top_k, "draw from the k likeliest; 0: all (default: 0)")
      ->check(whole_number(0, INT32_MAX));
  app.add_option("--top-p", options.top_p, "draw from the likeliest that sum to p (default: 1)");
  app.add_option("--min-p", options.min_p,
                 "draw from those at least p times as likely as the likeliest (default: 0)");
  app.add_option("-s,--seed", options.seed,
                 "seed of the draws (default: a new one, which is shown)")
      ->check(whole_number(0, INT64_MAX));
  add_penalty_flags(app, options);
}

// A schema may be given as it is; anything else is a file.
std::string schema_text(const std::string& given) {
  return given.starts_with('{') ? given : core::read_text_file(given, grammar::kMostSourceBytes);
}

void read_grammar(AnswerOptions& options) {
  const std::array given = {&options.json_schema, &options.grammar, &options.regex};
  const auto count =
      std::ranges::count_if(given, [](const std::string* text) { return !text->empty(); });
  check<ConfigError>(count <= 1,
                     "--json-schema, --grammar and --regex: more than one is given, expected one");
  auto& grammar = options.text.grammar;
  grammar.reset();
  if (!options.json_schema.empty()) {
    grammar = {grammar::Form::kJsonSchema, schema_text(options.json_schema)};
  } else if (!options.grammar.empty()) {
    grammar = {grammar::Form::kEbnf,
               core::read_text_file(options.grammar, grammar::kMostSourceBytes)};
  } else if (!options.regex.empty()) {
    grammar = {grammar::Form::kRegex, options.regex};
  }
  check<ConfigError>(!grammar || !options.text.ignores_end,
                     "--ignore-eos: with a grammar, whose texts end; leave one of them out");
}

}  // namespace

void add_answer_flags(CLI::App& app, AnswerOptions& options, const std::string& about_json) {
  app.add_option("-n,--max-tokens,--predict", options.text.generate.max_tokens,
                 "the most new tokens; -1: until the context is full (default: 256)")
      ->check(whole_number(-1, INT32_MAX));
  app.add_option("-c,--ctx-size", options.context,
                 "the most tokens kept, prompt and answer together (default: the model's, at most "
                 "4096)")
      ->check(whole_number(1, INT32_MAX));
  app.add_flag("--ignore-eos", options.text.ignores_end, "continue past the end of the text");
  app.add_option("--stop", options.text.stops,
                 "end the answer before this text; may be given several times (default: none)")
      ->allow_extra_args(false)
      ->check([](const std::string& text) -> std::string {
        return text.empty() ? "expected a text, got an empty one" : "";
      });
  app.add_option("-j,--json-schema", options.json_schema,
                 "a JSON schema that the answer satisfies: a file, or the schema itself (default: "
                 "none)");
  app.add_option("--grammar,--grammar-file", options.grammar,
                 "a file with a grammar of the answer in GBNF, whose first rule is root (default: "
                 "none)");
  app.add_option("--regex", options.regex,
                 "a regular expression that the whole answer matches (default: none)");
  add_speculate_flag(app, options.text.generate.speculate);
  add_sampler_flags(app, options.text.generate.sampler);
  app.add_option("--logprobs", options.text.generate.num_logprobs,
                 "tell ln of each new token's probability, and those of so many of the likeliest; "
                 "needs --json (default: none)")
      ->check(whole_number(0, generate::kMostLogprobs));
  app.add_flag("--json", options.is_json, about_json);
}

void check_answer_flags(AnswerOptions& options) {
  read_grammar(options);
  generate::GenerateOptions& generate = options.text.generate;
  if (generate.max_tokens < 0) generate.max_tokens = generate::kUnlimited;
  generate::check_sampler(generate.sampler);
  check<ConfigError>(generate.num_logprobs < 0 || options.is_json,
                     "--logprobs: without --json, which tells them; give it, too");
}

}  // namespace weft::cli
