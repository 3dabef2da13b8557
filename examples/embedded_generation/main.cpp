// Text from a model file within a program of one's own, on any number of ranks:
//   weft launch -n 2 -- build/embedded_generation MODEL "Once upon a time"
#include <iostream>

#include "weft/dist.h"
#include "weft/generate.h"
#include "weft/models.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: embedded_generation MODEL PROMPT\n";
    return 2;
  }
  const weft::dist::World world = weft::dist::init();
  const auto file = weft::io::TensorFile::open(argv[1]);
  const weft::text::Tokenizer tokenizer = weft::models::load_tokenizer(*file);
  const auto loaded = weft::models::load_model(*file, world);

  std::vector<int64_t> prompt;
  for (const auto id : tokenizer.encode_prompt(argv[2])) prompt.push_back(id);
  weft::generate::Engine engine(loaded.model, /*context=*/512);
  weft::generate::GenerateOptions options;
  options.max_tokens = 16;
  options.sampler.temperature = 0;
  // Called on rank 0 alone, for each token as it comes.
  const auto show = [&](int64_t token) {
    const auto id = static_cast<weft::text::TokenId>(token);
    if (tokenizer.is_end(id)) return weft::generate::Verdict::kStop;
    std::cout << tokenizer.bytes(id) << std::flush;
    return weft::generate::Verdict::kContinue;
  };
  engine.generate(prompt, options, show);
  if (world.rank() == 0) std::cout << "\n";
}
