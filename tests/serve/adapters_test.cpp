// Sequences that use several adapters of one model in the same steps.
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/cli/processes.h"
#include "tests/cli/weft_command.h"
#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/serve/made_up_adapters.h"
#include "tests/serve/serve_steps.h"
#include "weft/generate/engine.h"
#include "weft/models/peft_folder.h"
#include "weft/nn/adapters/adapter_scope.h"

namespace weft::serve {
namespace {

using nlohmann::json;
using test::Client;
using test::Loaded;
using test::MadeUpAdapters;
using test::real_model;
using test::request_of;
using test::run_slowly;
using test::serve_all;
using testing::error_text;

const MadeUpAdapters& adapters_of(int64_t number) {
  static const MadeUpAdapters first(1, 4), second(2, 7);
  return number == 1 ? first : second;
}

// Prompts that begin alike for all adapters and longer and shorter ones, with and without draws.
std::vector<Client> clients_of_three() {
  std::vector<Client> clients;
  for (int64_t i = 0; i < 9; ++i) {
    const int64_t length = i / 3 == 0 ? 20 : i / 3 == 1 ? 150 : 300;
    Client client{request_of(length, 5, 8, i % 2 == 0 ? 0 : 0.8), i / 4, -1};
    client.request.adapter = i % 3;
    client.request.options.generate.num_logprobs = 1;
    clients.push_back(client);
  }
  return clients;
}

SchedulerOptions some_pages() {
  SchedulerOptions options;
  options.context = 512;
  options.slots = 5;
  options.prefix.num_pages = 20;
  return options;
}

// As weft generate does.
std::string generated(const Loaded& loaded, const SequenceRequest& request) {
  generate::Engine engine(loaded.model, 512);
  const auto result = engine.generate(request.prompt, request.options.generate,
                                      [](int64_t) { return generate::Verdict::kContinue; });
  const std::vector<text::TokenId> ids(result.tokens.begin(), result.tokens.end());
  return loaded.tokenizer.decode(ids);
}

TEST(Adapters, InOneBatchGiveWhatEachGivesBesideTheModelAlone) {
  for (const int n : {1, 3}) {
    run_slowly(n, [](dist::World& world) {
      const Loaded together = real_model(world);
      for (const int64_t number : {1, 2}) {
        models::attach_adapter(*together.model, adapters_of(number), number);
      }
      const SchedulerOptions options = some_pages();
      const std::vector<Client> clients = clients_of_three();
      StepRunner runner(together.model, options.context, options.slots);
      const auto seen = serve_all(runner, together.tokenizer, clients, options);
      std::vector<std::string> texts;
      for (const int64_t number : {0, 1, 2}) {
        const Loaded own = real_model(world);
        if (number > 0) models::attach_adapter(*own.model, adapters_of(number));
        for (size_t i = 0; i < clients.size(); ++i) {
          if (clients[i].request.adapter != number) continue;
          Client alone = clients[i];
          alone.first_step = 0;
          alone.request.adapter = 0;
          StepRunner fresh(own.model, options.context, 1);
          const auto expected = serve_all(fresh, own.tokenizer, {alone}, options).front();
          const std::string text = i < 3 ? generated(own, alone.request) : expected.text;
          if (world.rank() != 0) continue;
          EXPECT_EQ(seen[i].text, expected.text) << "client " << i;
          EXPECT_EQ(seen[i].text, text) << "client " << i;
          EXPECT_EQ(seen[i].logprobs, expected.logprobs) << "client " << i;
          EXPECT_EQ(seen[i].logprobs.size(), 8U);
        }
        if (world.rank() == 0) texts.push_back(seen[static_cast<size_t>(number) + 3].text);
      }
      if (world.rank() != 0) return;
      EXPECT_NE(texts[0], texts[1]);
      EXPECT_NE(texts[0], texts[2]);
      EXPECT_NE(texts[1], texts[2]);
    });
  }
}

// The fused pass, against layers that run one by one.
TEST(Adapters, BesidePanelsAddWhatTheLayersThemselvesDo) {
  for (const int n : {1, 3}) {
    run_slowly(n, [](dist::World& world) {
      const c10::InferenceMode inference;
      const Loaded loaded = real_model(world);
      const auto logits_of = [&](bool is_fused, int64_t number) {
        const nn::AdapterScope scope({&number, 1});
        nn::KvCache cache = loaded.model->make_cache(1, 32);
        const at::Tensor ids_1T = at::tensor(test::some_tokens(30, 3), at::kLong).unsqueeze(0);
        return loaded.model->logits(loaded.model->forward(ids_1T, is_fused ? &cache : nullptr));
      };
      const at::Tensor before = logits_of(true, 0);
      models::attach_adapter(*loaded.model, adapters_of(1), 1);
      EXPECT_TRUE(at::equal(logits_of(true, 0), before)) << "who names none";
      const at::Tensor layers = logits_of(false, 1), fused = logits_of(true, 1);
      const double effect = (layers - logits_of(false, 0)).abs().mean().item<double>();
      EXPECT_GT(effect, 0.1);
      EXPECT_LT((fused - layers).abs().mean().item<double>(), 0.02 * effect);
    });
  }
}

constexpr char kAskTogether[] = R"(
import concurrent.futures, json, sys, urllib.error, urllib.request
url = f"http://127.0.0.1:{sys.argv[1]}/v1/"
def ask(model):
    body = {"model": model, "prompt": "The weather today is", "max_tokens": 12, "temperature": 0,
            "ignore_eos": True}
    request = urllib.request.Request(url + "completions", json.dumps(body).encode())
    try:
        return json.load(urllib.request.urlopen(request))
    except urllib.error.HTTPError as error:
        return {"status": error.code, **json.load(error)}
models = ["first", "second", "model", "default", "third"]
with concurrent.futures.ThreadPoolExecutor(5) as pool:
    answers = dict(zip(models, pool.map(ask, models)))
listed = json.load(urllib.request.urlopen(url + "models"))["data"]
print(json.dumps({"answers": answers, "listed": [(m["id"], m.get("parent")) for m in listed]}))
)";

json answers_of_server(const std::string& tp, const std::string& first, const std::string& second) {
  const std::string port = cli::free_port();
  weft::test::CommandOptions options = cli::with_model();
  options.timeout = std::chrono::minutes(5);
  weft::test::BackgroundCommand server(
      cli::weft_command({"serve", "--tp", tp, "--port", port, "--alias", "model", "--adapter",
                         "first=" + first, "--adapter", "second=" + second}),
      options);
  EXPECT_TRUE(server.wait_for_output("weft serve: model on http://127.0.0.1:" + port));
  const auto client = weft::test::run_command({"python3", "-c", kAskTogether, port}, options);
  server.signal(SIGTERM);
  EXPECT_EQ(server.finish().status, 143);
  EXPECT_EQ(client.status, 0) << client.err;
  return json::parse(client.out);
}

TEST(Serve, AnswersByTheAdapterThatARequestNames) {
  const testing::TempDir dir;
  std::vector<std::string> folders;
  for (const int64_t number : {1, 2}) {
    folders.push_back(dir.at("adapter" + std::to_string(number)));
    std::filesystem::create_directory(folders.back());
    const MadeUpAdapters& adapters = adapters_of(number);
    const int64_t rank = adapters.layers().front().rank;
    models::write_peft_folder(adapters, {"base", rank, 2.0 * static_cast<double>(rank), 0, {}},
                              folders.back());
  }
  std::set<std::string> fingerprints;
  const auto note_fingerprint = [&](const json& got) {
    fingerprints.insert(got["answers"]["model"]["system_fingerprint"].get<std::string>());
  };
  // Names of other adapters: what a name answers is another text, so the fingerprint is another.
  note_fingerprint(answers_of_server("1", folders[1], folders[0]));
  for (const char* tp : {"1", "2"}) {
    const json got = answers_of_server(tp, folders[0], folders[1]);
    note_fingerprint(got);
    EXPECT_EQ(got["listed"],
              json::parse(R"([["model", null], ["first", "model"], ["second", "model"]])"));
    const auto generated = [&](std::vector<std::string> more) {
      more.insert(more.begin(), {"generate", "-p", "The weather today is", "-n", "12", "--tp", tp,
                                 "--json", "--ignore-eos", "--model", cli::kModel});
      return cli::weft_json(more)["text"];
    };
    const json& answers = got["answers"];
    const auto text_of = [&](const char* model) { return answers[model]["choices"][0]["text"]; };
    EXPECT_EQ(text_of("first"), generated({"--adapter", folders[0]})) << tp;
    EXPECT_EQ(text_of("second"), generated({"--adapter", folders[1]})) << tp;
    EXPECT_EQ(text_of("model"), generated({})) << tp;
    EXPECT_EQ(text_of("default"), text_of("model"));
    EXPECT_NE(text_of("first"), text_of("model"));
    EXPECT_NE(text_of("second"), text_of("model"));
    EXPECT_EQ(answers["first"]["model"], "first");
    EXPECT_EQ(answers["third"]["status"], 404);
    EXPECT_EQ(answers["third"]["error"]["code"], "model_not_found");
    EXPECT_EQ(answers["third"]["error"]["message"], "model 'third', expected model, first, second");
  }
  EXPECT_EQ(fingerprints.size(), 3U);
}

}  // namespace
}  // namespace weft::serve
