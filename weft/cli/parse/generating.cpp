// Flags of the verbs that run a model.
#include <random>

#include "weft/cli/flags.h"
#include "weft/cli/parse/parse.h"
#include "weft/core/error.h"

namespace weft::cli {
namespace {

using core::check;
using core::ConfigError;

constexpr char kAboutPerplexity[] =
    "Prints exp of the mean of -ln p over the scored tokens of a text.\n"
    "Windows of --ctx-size tokens stand side by side and the second half of each is scored, as "
    "llama.cpp does it. With --stride S each window begins S tokens behind the one before and "
    "scores what that did not, as in the documentation of transformers.";

void add_served_flags(CLI::App& app, ServedOptions& options) {
  app.add_option("--alias", options.alias,
                 "what requests call the model (default: the name of its file or folder)");
  app.add_option("-c,--ctx-size", options.context,
                 "the most tokens of a sequence, prompt and answer together (default: the model's, "
                 "at most 4096)")
      ->check(whole_number(1, INT32_MAX));
  app.add_option("--parallel,--np", options.slots, "sequences that run at once (default: 8)")
      ->check(whole_number(1, 1024));
  app.add_option(
         "--step-tokens", options.step_tokens,
         "the most tokens that are read in a step: every running sequence's next one, then "
         "prompts in pieces of 128 (default: --parallel + 512, and 15 more with --speculate)")
      ->check(whole_number(1, 1 << 20));
  add_speculate_flag(app, options.speculate);
  app.add_option(
         "--prefix-cache-mb,--cache-ram", options.prefix_cache_mb,
         "MiB of all ranks together for keys and values of prompts, from which prompts that "
         "begin alike go on; 0: none (default: 1024)")
      ->check(whole_number(0, 1 << 24));
  app.add_option(
         "--kv-cache-mb", options.kv_cache_mb,
         "MiB of all ranks together for keys and values of sequences that run: without room the "
         "youngest waits and is read again; 0: a context for each of --parallel (default: 0)")
      ->check(whole_number(0, 1 << 24));
  app.add_option("--pooling", options.pooling,
                 "what an embedding is: the hidden state of the text's last token, or the mean of "
                 "all (default: last)")
      ->check(CLI::IsMember({"last", "mean"}));
}

void check_served(const ServedOptions& options) {
  check<ConfigError>(options.kv_cache_mb == 0 || options.model.device != "cuda",
                     "--kv-cache-mb: with --device cuda, expected cpu, as a GPU's caches have a "
                     "whole context each; leave one of them out");
}

void add_serve_flags(CLI::App& app, ServeVerbOptions& options) {
  app.add_option("--host", options.host,
                 "the address to listen on; any but this machine's own needs --api-key-file "
                 "(default: 127.0.0.1)")
      ->envname("WEFT_SERVE_HOST");
  app.add_option("--port", options.port, "0 takes any free one (default: 8080)")
      ->check(whole_number(0, UINT16_MAX));
  app.add_option("--api-key-file", options.api_key_file,
                 "a file with a key in each line; requests need one of them (default: none)");
  app.add_option(
      "--ssl-cert-file,--ssl-certfile", options.certificate_file,
      "a PEM file with this server's certificate, then its chain: answers by HTTPS alone "
      "(default: by HTTP)");
  app.add_option("--ssl-key-file,--ssl-keyfile", options.key_file,
                 "a PEM file with the certificate's private key");
  app.add_option("--cors-origins", options.cors_origins,
                 "a web page that may ask, like https://example.org, or *; may be given several "
                 "times (default: none)")
      ->allow_extra_args(false);
  app.add_flag("--no-page", options.has_no_page, "no chat page at /");
  app.add_flag("--log-json", options.logs_json,
               "write a JSON object on a line of stderr for each request");
  app.add_option("--max-queue", options.max_queue,
                 "sequences that wait; further requests are refused with 429 (default: 128)")
      ->check(whole_number(1, 1 << 20));
  app.add_option(
      "--max-slowdown", options.max_slowdown,
      "how many times as long as alone a step of running answers may take beside a prompt that is "
      "read, 1.1 to 1000; 0: prompts come first (default: 2.5)");
  app.add_option("--max-connections", options.max_connections,
                 "clients at a time; others wait until one goes (default: 2000)")
      ->check(whole_number(1, 1 << 16));
  app.add_flag("--restart,!--no-restart", options.restarts,
               "with --tp: when a rank is lost, start all of them again (default: on)");
}

void add_batch_flags(CLI::App& app, BatchVerbOptions& options) {
  app.add_option("-i,--requests", options.requests,
                 "a file with a request in each line: a prompt in quotes, an object with prompt or "
                 "messages, or one of OpenAI's batches; - reads stdin");
  app.add_option("-o,--out", options.out,
                 "the file to write, an answer in each line (default: stdout)");
  app.add_flag("--force", options.force, "replace the file to write");
  app.add_flag("--resume", options.resumes,
               "keep the answers that the file to write has, and ask the rest");
  app.add_option("-n,--max-tokens", options.max_tokens,
                 "the most new tokens of requests that don't say; -1: until the context is full "
                 "(default: 256)")
      ->check(whole_number(-1, INT32_MAX));
  app.add_option("--temp,--temperature", options.temperature,
                 "randomness of requests that don't say (default: 0)")
      ->check(CLI::Range(0.0, 2.0));
  app.add_option("-s,--seed", options.seed, "seed of requests that don't say (default: a new one)")
      ->check(whole_number(0, INT64_MAX));
}

// Of two ways to give a text one may be used.
void check_one_of(const char* flag, const std::string& text, const char* file_flag,
                  const std::string& file) {
  check<ConfigError>(text.empty() || file.empty(), file_flag, ": beside ", flag,
                     ", expected one of them; leave the other out");
}

// Who draws and names no seed gets other draws each time. Only rank 0's counts: it draws.
void choose_seed(const CLI::App& app, AnswerOptions& options) {
  generate::SamplerOptions& sampler = options.text.generate.sampler;
  options.is_seed_given = app.count("--seed") > 0;
  options.is_seed_new = !options.is_seed_given && sampler.temperature > 0;
  if (options.is_seed_new) sampler.seed = std::random_device()();
}

bool asks_once(const ChatOptions& options) {
  return !options.prompt.empty() || !options.prompt_file.empty();
}

// Addresses that no other machine reaches.
bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

void check_tls_files(const ServeVerbOptions& options) {
  const bool has_certificate = !options.certificate_file.empty();
  check<ConfigError>(has_certificate == !options.key_file.empty(),
                     has_certificate ? "--ssl-cert-file: without --ssl-key-file"
                                     : "--ssl-key-file: without --ssl-cert-file",
                     ", expected both; give the other one, too");
}

}  // namespace

std::optional<ChatOptions> parse_chat(const Args& args) {
  CLI::App app("Talks to a model in its own chat format.", "chat");
  ChatOptions options;
  options.model.command = command_of("chat", args);
  options.model.activations = kFastActivations;
  add_running_flags(app, options.model);
  add_exact_flag(app, options.model);
  app.add_option("-p,--prompt", options.prompt,
                 "ask this and end; - reads stdin (default: talk line by line)");
  app.add_option("-f,--file", options.prompt_file, "ask what stands in this file, and end");
  app.add_option("--system-prompt,--sys", options.system, "what the model is told first");
  app.add_option("--system-prompt-file,--sysf", options.system_file,
                 "a file with what the model is told first");
  add_answer_flags(app, options.answer, "print one JSON object; needs -p");
  if (!parse_flags(app, args)) return std::nullopt;
  check_answer_flags(options.answer);
  choose_seed(app, options.answer);
  check_one_of("--prompt", options.prompt, "--file", options.prompt_file);
  check_one_of("--system-prompt", options.system, "--system-prompt-file", options.system_file);
  check<ConfigError>(!options.answer.is_json || asks_once(options),
                     "--json: needs one question; give it with -p");
  return options;
}

std::optional<GenerateVerbOptions> parse_generate(const Args& args) {
  CLI::App app("Continues a text, without a chat template.", "generate");
  GenerateVerbOptions options;
  options.model.command = command_of("generate", args);
  options.model.activations = kFastActivations;
  add_running_flags(app, options.model);
  add_exact_flag(app, options.model);
  app.add_option("-p,--prompt", options.prompt, "the text to continue; - reads stdin");
  app.add_option("-f,--file", options.prompt_file, "a file with the text to continue");
  add_answer_flags(app, options.answer, "print one JSON object instead of the text");
  if (!parse_flags(app, args)) return std::nullopt;
  check<ConfigError>(app.count("--prompt") + app.count("--file") != 0,
                     "generate: --prompt is required, or --file");
  check_one_of("--prompt", options.prompt, "--file", options.prompt_file);
  check_answer_flags(options.answer);
  choose_seed(app, options.answer);
  return options;
}

std::optional<ServeVerbOptions> parse_serve(const Args& args) {
  CLI::App app("Answers requests in the form of OpenAI's API.", "serve");
  ServeVerbOptions options;
  options.model.command = command_of("serve", args);
  options.max_slowdown = 2.5;
  options.model.activations = kFastActivations;
  std::vector<std::string> adapters;
  add_model_flags(app, options.model);
  add_device_flag(app, options.model);
  add_cache_flag(app, options.model);
  add_adapters_flag(app, adapters);
  add_exact_flag(app, options.model);
  add_served_flags(app, options);
  add_serve_flags(app, options);
  if (!parse_flags(app, args)) return std::nullopt;
  take_adapters(adapters, options.model);
  check_served(options);
  check<ConfigError>(is_loopback(options.host) || !options.api_key_file.empty(),
                     "--host: ", options.host,
                     " is open to other machines, expected --api-key-file with it; "
                     "give one or listen on 127.0.0.1");
  const double slowdown = options.max_slowdown;
  check<ConfigError>(slowdown == 0 || (slowdown >= 1.1 && slowdown <= 1000),
                     "--max-slowdown: ", slowdown, ", expected 1.1 to 1000, or 0");
  check_tls_files(options);
  return options;
}

std::optional<BatchVerbOptions> parse_batch(const Args& args) {
  CLI::App app("Answers the requests of a file, many at once, in their order.", "batch");
  BatchVerbOptions options;
  options.model.command = command_of("batch", args);
  // As many as are asked at once: none is refused because others wait.
  options.max_queue = 1 << 20;
  options.model.activations = kFastActivations;
  std::vector<std::string> adapters;
  add_model_flags(app, options.model);
  add_device_flag(app, options.model);
  add_cache_flag(app, options.model);
  add_adapters_flag(app, adapters);
  add_exact_flag(app, options.model);
  add_served_flags(app, options);
  add_batch_flags(app, options);
  if (!parse_flags(app, args, {"--requests"})) return std::nullopt;
  take_adapters(adapters, options.model);
  check_served(options);
  check<ConfigError>(options.max_tokens != 0, "--max-tokens: 0, expected 1 or more, or -1");
  check<ConfigError>(!options.resumes || !options.out.empty(),
                     "--resume: without --out, expected the file to go on with");
  check<ConfigError>(!options.resumes || !options.force,
                     "--resume: beside --force, expected one of them; leave the other out");
  return options;
}

std::optional<LogitsOptions> parse_logits(const Args& args) {
  CLI::App app("Writes the float32 logits [tokens, vocab] of given tokens.", "logits");
  LogitsOptions options;
  options.model.command = command_of("logits", args);
  options.model.halves_as_stored = true;
  std::string tokens;
  add_model_flags(app, options.model);
  add_adapter_flag(app, options.model);
  add_exact_flag(app, options.model);
  app.add_option("--tokens", tokens, "token ids, e.g. 1,2,3");
  add_file_flags(app, options.out, options.force, "the safetensors file to write");
  if (!parse_flags(app, args, {"--tokens", "--out"})) return std::nullopt;
  options.tokens = parse_list("--tokens", tokens, "ids like 1,2,3");
  return options;
}

std::optional<PerplexityVerbOptions> parse_perplexity(const Args& args) {
  CLI::App app(kAboutPerplexity, "perplexity");
  PerplexityVerbOptions options;
  options.model.command = command_of("perplexity", args);
  options.model.halves_as_stored = true;
  options.scoring.context = 0;
  add_running_flags(app, options.model);
  add_exact_flag(app, options.model);
  app.add_option("-f,--file", options.file, "the text, UTF-8");
  app.add_option("-c,--ctx-size", options.scoring.context,
                 "tokens per window (default: 512, at most the model's)")
      ->check(whole_number(4, INT32_MAX));
  app.add_option("--stride", options.scoring.stride,
                 "tokens from one window's begin to the next one's (default: side by side)")
      ->check(whole_number(1, INT32_MAX));
  app.add_option("--against", options.against,
                 "also compare all predictions with those of this model in float32; float: of the "
                 "same one, which tells what --activations and --cache-type cost (default: none)");
  app.add_flag("--json", options.is_json, "print one JSON object");
  if (!parse_flags(app, args, {"--file"})) return std::nullopt;
  check<ConfigError>(
      !options.model.is_exact || options.against.empty(),
      "--exact: with --against, expected one model, as predictions in float32 have no fixed order; "
      "leave one of them out");
  return options;
}

}  // namespace weft::cli
