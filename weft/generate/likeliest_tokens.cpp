#include "weft/generate/likeliest_tokens.h"

#include "weft/generate/sampler.h"

namespace weft::generate {

std::vector<int64_t> likeliest_tokens(models::CausalLM& model, const at::Tensor& x_BTD) {
  std::vector<int64_t> tokens;
  for (const nn::Largest& logit : model.likeliest(x_BTD, 1))
    tokens.push_back(likeliest_token(logit));
  return tokens;
}

}  // namespace weft::generate
