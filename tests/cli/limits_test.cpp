// What the system or a file refuses: one line that names it, with the exit code of the error.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "tests/cli/weft_command.h"
#include "tests/core/temp_dir.h"
#include "tests/text/byte_tokenizer.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;
using test::CommandResult;
using testing::TempDir;
using Strings = std::vector<std::string>;

// Puts NaN into the fifth element of a tensor of float32.
void damage(const std::string& path, const std::string& tensor) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof length);
  std::string header(length, '\0');
  file.read(header.data(), static_cast<std::streamsize>(length));
  const auto offsets = nlohmann::json::parse(header).at(tensor).at("data_offsets");
  const float value = NAN;
  file.seekp(
      static_cast<std::streamoff>(8 + length + offsets[0].get<uint64_t>() + 4 * sizeof value));
  file.write(reinterpret_cast<const char*>(&value), sizeof value);
}

TEST(DamagedWeights, AreNamedByEveryVerb) {
  const TempDir dir;
  const std::string model = dir.at("model"), out = dir.at("out");
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  fs::copy(kPlain, model);
  testing::add_byte_tokenizer(model);
  damage(model + "/model.safetensors", name);
  const std::string text = dir.write("text", "Some words that are long enough for a window.");
  const Strings verbs[] = {{"logits", model, "--tokens", "1", "-o", out},
                           {"logits", model, "--tokens", "1", "-o", out, "--tp", "2"},
                           {"generate", model, "-p", "x", "-n", "1"},
                           {"generate", model, "-p", "x", "-n", "1", "--temp", "1"},
                           {"bench", model, "-p", "4", "-n", "2", "-r", "1"},
                           {"perplexity", model, "-f", text, "-c", "16"},
                           {"quantize", model, out},
                           {"quantize", model, out, "--tp", "2"},
                           {"convert", model, out},
                           {"convert", model, out + ".gguf"},
                           {"shard", model, out, "--tp", "2"}};
  for (const Strings& verb : verbs) {
    SCOPED_TRACE(nlohmann::json(verb).dump());
    const CommandResult result = weft(verb);
    EXPECT_EQ(result.status, 3) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(num_lines(result.err), 1) << result.err;
    EXPECT_NE(result.err.find("FormatError: " + model + ": tensor '" + name +
                              "': element 4, expected a finite number, got NaN or infinity; "),
              std::string::npos)
        << result.err;
    EXPECT_EQ(dir.num_files(), 2U);
  }
}

// As a user who has nothing else running: root's processes have no limit.
CommandResult limited(const std::string& limit, const Strings& args) {
  const std::string script = limit + "; exec \"$@\"";
  Strings command = {"bash", "-c", script, "bash"};
  if (::geteuid() == 0) {
    command = joined({"setpriv", "--reuid", "54321", "--clear-groups"}, command);
  }
  return test::run_command(joined(command, weft_command(args)), with_model());
}

TEST(Limits, OfThreadsAndFilesAreTold) {
  const Strings answer = {"generate", "-p", "The quick brown fox jumps over", "-n", "2"};
  for (const std::string tp : {"1", "2"}) {
    for (const std::string limit :
         {"ulimit -u 1", "ulimit -u 3", "ulimit -n 5", "ulimit -n 12", "ulimit -f 0"}) {
      SCOPED_TRACE(limit + " --tp " + tp);
      const CommandResult result = limited(limit, joined(answer, {"--tp", tp}));
      EXPECT_FALSE(result.timed_out);
      if (result.status == 0) continue;
      EXPECT_EQ(result.status, 5) << result.err;
      EXPECT_EQ(num_lines(result.err), 1) << result.err;
      EXPECT_NE(result.err.find("weft: IoError: "), std::string::npos) << result.err;
    }
    EXPECT_EQ(limited("ulimit -u 1", joined(answer, {"--tp", tp})).status, 5);
  }
  // One rank needs no more than the standard streams and a file at a time.
  EXPECT_EQ(limited("ulimit -n 5", joined(answer, {"--tp", "2"})).status, 5);
}

// Of the threads that Gloo would start, the first but not the second is allowed at one of these.
TEST(Limits, OfGloosThreadsAreTold) {
  for (const std::string limit : {"ulimit -u 8", "ulimit -u 9", "ulimit -u 10", "ulimit -u 11"}) {
    SCOPED_TRACE(limit);
    const CommandResult result =
        limited(limit, {"generate", "-p", "x", "-n", "1", "--tp", "2", "--backend", "gloo"});
    EXPECT_TRUE(result.status == 0 || result.status == 4 || result.status == 5) << result.status;
    if (result.status == 0) continue;
    EXPECT_EQ(num_lines(result.err), 1) << result.err;
  }
}

TEST(Limits, AreToldBeforeLibtorchMeetsThem) {
  const Strings answer = {"generate", "-p", "x", "-n", "1"};
  const auto message = [](const std::string& what, const std::string& least, const std::string& got,
                          const std::string& flag) {
    return "weft: IoError: limit of " + what + ": expected at least " + least +
           " KiB, which libtorch needs, got " + got + " KiB; raise it (ulimit " + flag + ")\n";
  };
  const CommandResult addresses = limited("ulimit -v 400000", answer);
  EXPECT_EQ(addresses.status, 5);
  EXPECT_EQ(addresses.err, message("address space", "524288", "400000", "-v"));
  const CommandResult stack = limited("ulimit -s 64", answer);
  EXPECT_EQ(stack.status, 5);
  EXPECT_EQ(stack.err, message("stack", "512", "64", "-s"));
}

}  // namespace
}  // namespace weft::cli
