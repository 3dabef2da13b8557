// Flags of `weft bench`: a model on this machine, or a server.
#include <algorithm>
#include <array>
#include <random>
#include <string_view>

#include "weft/cli/flags.h"
#include "weft/cli/parse/parse.h"
#include "weft/core/error.h"

namespace weft::cli {
namespace {

using core::check;
using core::ConfigError;

void add_bench_flags(CLI::App& app, BenchOptions& options) {
  app.add_option("-p,--n-prompt", options.prompt_tokens,
                 "tokens of the prompt, or words with --url (default: 512)")
      ->check(whole_number(1, 1 << 20));
  app.add_option("-n,--n-gen", options.new_tokens, "new tokens (default: 128)")
      ->check(whole_number(2, 1 << 20));
  app.add_option("-d,--n-depth", options.depth,
                 "tokens that stand before the prompt, or the new tokens, already (default: 0)")
      ->check(whole_number(0, 1 << 20));
  app.add_option("-r,--repetitions", options.runs, "runs that count (default: 5)")
      ->check(whole_number(1, 1000));
  app.add_flag("--json", options.is_json, "print one JSON object");
  add_speculate_flag(app, options.speculate);
  app.add_flag("--profile", options.is_profiled,
               "also show what a token takes by parts on each rank, and what the machine could do");
}

// Numbers between commas, as they were typed.
struct TypedLists {
  std::string batches, clients, rates;
};

void add_load_flags(CLI::App& app, BenchLoadOptions& options, TypedLists& lists) {
  serve::LoadOptions& asked = options.asked;
  app.add_option("--url", asked.url,
                 "measure this server of OpenAI's API rather than a model: http://HOST:PORT/v1 or "
                 "https (default: none)");
  app.add_option("--clients", lists.clients,
                 "clients that ask again as soon as they are answered; several numbers are "
                 "measured in turn, e.g. 1,4,16 (default: 1)");
  app.add_option("--rate", lists.rates,
                 "begin so many requests a second, whatever is being answered, rather than "
                 "--clients; several numbers are measured in turn (default: none)");
  app.add_option("--num-requests", asked.num_requests, "requests of each measurement (default: 32)")
      ->check(whole_number(1, 1 << 20));
  app.add_option("--shared-words", asked.shared_words,
                 "words with which all prompts begin (default: 0)")
      ->check(whole_number(0, 1 << 20));
  app.add_option("--first-token-limit", options.limits.first_token,
                 "milliseconds within which an answer has to begin to count for goodput (default: "
                 "none)")
      ->check(CLI::PositiveNumber);
  app.add_option("--between-tokens-limit", options.limits.between_tokens,
                 "milliseconds that its tokens may be apart, on average (default: none)")
      ->check(CLI::PositiveNumber);
  app.add_option("--alias", asked.model,
                 "what requests call the model (default: the first that the server lists)");
  app.add_option("--api-key-file", options.api_key_file,
                 "a file whose first line is the server's key (default: none)");
  app.add_option(
      "--ssl-ca-file", asked.trusted_file,
      "a PEM file with certificates to trust of an https server (default: the system's)");
  app.add_option("--seed", asked.seed, "seed of the prompts' words (default: a new one)")
      ->check(whole_number(0, INT64_MAX));
  add_file_flags(app, options.chart, options.force,
                 "an SVG file to draw the measurements of a server in (default: none)");
}

std::vector<int64_t> parse_counts(const char* flag, const std::string& text, const char* of) {
  constexpr int64_t kMost = 1024;
  const auto counts = parse_list(flag, text, core::join("numbers of ", of, " like 1,4,16"));
  for (const int64_t count : counts) {
    check<ConfigError>(count >= 1 && count <= kMost, flag, ": ", count, " ", of, ", expected 1 to ",
                       kMost);
  }
  return counts;
}

// Whether an argument gives the flag, as --name, --name=VALUE, -x or -xVALUE.
bool is_given(const CLI::Option& option, const Args& args) {
  return std::ranges::any_of(args, [&](std::string_view arg) {
    if (arg.starts_with("--")) {
      return std::ranges::count(option.get_lnames(), arg.substr(2, arg.find('=') - 2)) > 0;
    }
    return arg.size() > 1 && arg[0] == '-' &&
           std::ranges::count(option.get_snames(), arg.substr(1, 1)) > 0;
  });
}

// What is said of a model on this machine would mean nothing to a server, and the other way round.
void check_for_load(const CLI::App& app, const Args& args, const BenchLoadOptions& options) {
  constexpr std::array<std::string_view, 5> kBoth = {"n-prompt", "n-gen", "json", "config", "help"};
  constexpr std::array<std::string_view, 13> kLoad = {"url",          "clients",
                                                      "rate",         "num-requests",
                                                      "shared-words", "first-token-limit",
                                                      "alias",        "api-key-file",
                                                      "ssl-ca-file",  "between-tokens-limit",
                                                      "seed",         "out",
                                                      "force"};
  const bool is_load = !options.asked.url.empty();
  check<ConfigError>(is_load || app.count("--url") == 0,
                     "--url: empty, expected one like http://127.0.0.1:8080/v1");
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      check<ConfigError>(!is_load || std::ranges::none_of(args,
                                                          [&](const auto& arg) {
                                                            return option->count() > 0 &&
                                                                   arg == option->results().front();
                                                          }),
                         "--url: beside a model, expected one of them; leave the other out");
      continue;
    }
    if (option->get_lnames().empty() || !is_given(*option, args)) continue;
    const std::string& name = option->get_lnames().front();
    if (std::ranges::count(kBoth, name) > 0) continue;
    const bool is_of_load = std::ranges::count(kLoad, name) > 0;
    check<ConfigError>(is_of_load == is_load, "--", name,
                       is_load ? ": beside --url, expected flags of a load; leave it out"
                               : ": without --url, expected the server that is measured with it");
  }
  check<ConfigError>(!is_load || app.count("--rate") == 0 || app.count("--clients") == 0,
                     "--rate: beside --clients, expected one of them; leave the other out");
}

}  // namespace

std::optional<BenchOptions> parse_bench(const Args& args) {
  CLI::App app(
      "Measures prompt and generation speed: medians over runs. With --url it measures a server: "
      "times to the first token and between tokens.",
      "bench");
  BenchOptions options;
  options.model.command = command_of("bench", args);
  options.model.activations = kFastActivations;
  options.load.asked.seed = std::random_device()();
  TypedLists lists;
  add_running_flags(app, options.model);
  add_exact_flag(app, options.model);
  add_bench_flags(app, options);
  app.add_option("-b,--batch", lists.batches,
                 "also generate so many sequences at once, e.g. 1,4,16 (default: none)");
  add_load_flags(app, options.load, lists);
  if (!parse_flags(app, args)) return std::nullopt;
  check_for_load(app, args, options.load);
  if (app.count("--batch") > 0) {
    options.batches = parse_counts("--batch", lists.batches, "sequences");
  }
  if (app.count("--clients") > 0) {
    options.load.clients = parse_counts("--clients", lists.clients, "clients");
  }
  if (app.count("--rate") > 0) options.load.rates = parse_rates("--rate", lists.rates);
  check<ConfigError>(!options.is_profiled || options.model.device == "cpu",
                     "--profile: with --device cuda, expected cpu: parts and limits are "
                     "the processor's; leave one of them out");
  return options;
}

}  // namespace weft::cli
