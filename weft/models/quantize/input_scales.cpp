#include "weft/models/quantize/input_scales.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "weft/core/error.h"
#include "weft/dist/launch/run_together.h"
#include "weft/models/options/options.h"
#include "weft/quant/one_thread.h"

namespace weft::models {
namespace {

using core::check;

// Rows of a matrix by which factors are compared, at most and at least, and about how many of all
// that read an input: every so many-th of a matrix's.
constexpr int64_t kComparedRows = 32, kLeastRows = 4, kRowsOfAll = 256;
// Powers from 0 on that are tried.
constexpr int kPowers = 10;
// Of the mean, so that columns which no token reached have a factor as well.
constexpr double kLeastSize = 1e-4;

// What changes nothing between a norm and the matrices that read it, routers among them, between
// values and the output, and between up and down.
constexpr OptionSet kFolding = {Option::kWindows,         Option::kQkvBias,
                                Option::kOutputBias,      Option::kMlpBias,
                                Option::kNormsOfEachHead, Option::kNormsOfAllHeads,
                                Option::kPartialRope,     Option::kNormsBeforeAndAfter,
                                Option::kEmbeddingScale,  Option::kLayersWithoutRope,
                                Option::kAttentionScale,  Option::kResidualScale,
                                Option::kLogitsScale,     Option::kGelu,
                                Option::kScoreCap,        Option::kLogitsCap,
                                Option::kRopeOfWindows,   Option::kQueryGrowth,
                                Option::kSinks,           Option::kTurnsNeighbours,
                                Option::kExperts,         Option::kRouterBias,
                                Option::kSigmoidRouting,  Option::kUngatedSharedExpert};

// What makes an input of some matrices: a norm, or the rows of a matrix.
struct Junction {
  PartPlace maker;
  std::vector<PartPlace> readers;
  bool is_norm() const { return is_norm_part(maker.part); }
};

void add_experts(const ModelConfig& config, int64_t layer, std::vector<Junction>& all) {
  Junction inputs{{Part::kFfnNorm, layer}, {}};
  for (const Part part : {Part::kRouter, Part::kSharedRouter, Part::kSharedGate, Part::kSharedUp}) {
    inputs.readers.push_back({part, layer});
  }
  for (int64_t e = 0; e < config.experts.num_experts; ++e) {
    inputs.readers.push_back({Part::kExpertGate, layer, e});
    inputs.readers.push_back({Part::kExpertUp, layer, e});
    all.push_back({{Part::kExpertUp, layer, e}, {{Part::kExpertDown, layer, e}}});
  }
  all.push_back({{Part::kSharedUp, layer}, {{Part::kSharedDown, layer}}});
  all.push_back(std::move(inputs));
}

std::vector<Junction> possible_junctions(const ModelConfig& config) {
  std::vector<Junction> all;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const auto at = [&](Part part) { return PartPlace{part, layer}; };
    all.push_back({at(Part::kInputNorm), {at(Part::kQuery), at(Part::kKey), at(Part::kValue)}});
    all.push_back({at(Part::kValue), {at(Part::kOutput)}});
    if (config.has_experts(layer)) {
      add_experts(config, layer, all);
      continue;
    }
    all.push_back({at(Part::kFfnNorm), {at(Part::kGate), at(Part::kUp)}});
    all.push_back({at(Part::kUp), {at(Part::kDown)}});
  }
  return all;
}

// Of what the model has.
std::vector<Junction> junctions_of(const ModelConfig& config) {
  std::set<std::tuple<Part, int64_t, int64_t>> known;
  for (const auto& [name, place] : part_places(config)) {
    known.emplace(place.part, place.layer, place.expert);
  }
  const auto is_missing = [&](const PartPlace& place) {
    return !known.contains({place.part, place.layer, place.expert});
  };
  std::vector<Junction> all = possible_junctions(config);
  std::erase_if(all, [&](const Junction& each) { return is_missing(each.maker); });
  for (Junction& each : all) std::erase_if(each.readers, is_missing);
  return all;
}

// A matrix that reads the input, by some of its rows.
struct JunctionReader {
  const ExportOutput* output;
  at::Tensor sample;
  at::Tensor squares;
  // Undefined: errors are counted by squares.
  at::Tensor products;
  // How many it read: tokens go to a few experts each.
  double tokens = 0;
};

// What inputs' features are made of: several of a matrix's are one row of the maker (values that
// heads of several queries share).
class Sharing {
 public:
  Sharing(const ModelConfig& config, const Junction& junction) {
    if (junction.maker.part != Part::kValue) return;
    heads_ = config.num_kv_heads;
    repeats_ = config.num_heads / config.num_kv_heads;
  }
  // Means over what shares a row, [rows of the maker].
  at::Tensor joined(const at::Tensor& features) const {
    return features.reshape({heads_, repeats_, -1}).mean(1).reshape({-1});
  }
  // Back to features.
  at::Tensor spread(const at::Tensor& rows) const {
    const at::Tensor parts = rows.reshape({heads_, 1, -1});
    return parts.expand({heads_, repeats_, parts.size(2)}).reshape({-1});
  }

 private:
  int64_t heads_ = 1, repeats_ = 1;
};

at::Tensor no_less(const at::Tensor& sizes) {
  return sizes.clamp_min(std::max(sizes.mean().item<double>() * kLeastSize, 1e-20));
}

// How large a column's numbers are beside those of its quant group, on average over the rows.
at::Tensor column_sizes(const JunctionReader& reader) {
  const at::Tensor groups = reader.sample.abs().reshape({-1, reader.output->scheme->group_size});
  const at::Tensor most = std::get<0>(groups.max(1, true)).clamp_min(1e-20);
  return (groups / most).reshape(reader.sample.sizes()).mean(0);
}

// What rounding the sample costs with these factors of its columns, for all rows.
double cost_of(const JunctionReader& reader, const at::Tensor& factors) {
  const at::Tensor counts = reader.squares / factors.square();
  const quant::AffineTensor codes =
      quant::fit_affine(reader.sample * factors, reader.output->affine_form(), counts);
  const at::Tensor errors = quant::dequantize(codes, at::kFloat) / factors - reader.sample;
  const quant::OneThread one_thread;
  const at::Tensor costs = reader.products.defined() ? errors.matmul(reader.products) * errors
                                                     : errors.square() * reader.squares;
  return costs.sum(at::kDouble).item<double>() * reader.tokens *
         static_cast<double>(reader.output->rule().out) /
         static_cast<double>(reader.sample.size(0));
}

// The norm divided by the factors as its type holds it, and the factors that this really makes: 1
// where the type can't hold it.
struct FoldedNorm {
  at::Tensor norm, factors;
};

FoldedNorm fold_norm(const at::Tensor& norm, const at::Tensor& factors, at::ScalarType type,
                     double offset) {
  const at::Tensor whole = norm + offset;
  const at::Tensor stored = (whole / factors - offset).to(type).to(at::kFloat);
  const at::Tensor left = stored + offset;
  const at::Tensor is_used = (left != 0).logical_and(whole != 0).logical_and(at::isfinite(left));
  return {at::where(is_used, stored, norm), at::where(is_used, whole / left, 1.0)};
}

class ScaleSearch {
 public:
  ScaleSearch(const ModelConfig& config, const RowReader& reader,
              const std::map<std::string, const ExportOutput*>& outputs,
              const Importance& importance)
      : config_(config), reader_(reader), outputs_(outputs), importance_(importance) {}

  const ExportOutput* find(const PartPlace& place) const {
    const auto found = outputs_.find(model_name(config_, place));
    return found == outputs_.end() ? nullptr : found->second;
  }

  // Factors of the maker's features, float32.
  at::Tensor factors_of(const Junction& junction) const {
    const std::vector<JunctionReader> readers = readers_of(junction);
    const ExportOutput& maker = *find(junction.maker);
    const int64_t features = maker.rule().is_vector() ? maker.rule().in : maker.rule().out;
    at::Tensor best = at::ones({features});
    if (readers.empty()) return best;
    const Sharing sharing(config_, junction);
    at::Tensor sizes, columns;
    {
      const quant::OneThread one_thread;
      sizes = no_less(sharing.joined(mean_squares(readers)).sqrt());
      columns = no_less(sharing.joined(mean_column_sizes(readers)));
    }
    double least = cost_of_all(readers, sharing.spread(best));
    // The last would be the first half's last again.
    for (int k = 1; k < 2 * kPowers; ++k) {
      const double power = static_cast<double>((k - 1) % kPowers + 1) / kPowers;
      const at::Tensor factors = trial(sizes, columns, power, k > kPowers);
      const double cost = cost_of_all(readers, sharing.spread(factors));
      if (!(cost < least)) continue;
      least = cost;
      best = factors;
    }
    return best;
  }

 private:
  static at::Tensor trial(const at::Tensor& sizes, const at::Tensor& columns, double power,
                          bool counts_columns) {
    const quant::OneThread one_thread;
    at::Tensor factors = sizes.pow(power);
    if (counts_columns) factors = factors / columns.pow(1 - power);
    factors = factors / (factors.max() * factors.min()).sqrt();
    return factors.clamp(1e-4, 1e4);
  }

  static double cost_of_all(const std::vector<JunctionReader>& readers, const at::Tensor& factors) {
    double sum = 0;
    for (const JunctionReader& reader : readers) sum += cost_of(reader, factors);
    return sum;
  }

  static at::Tensor mean_squares(const std::vector<JunctionReader>& readers) {
    at::Tensor sum = at::zeros_like(readers[0].squares);
    double tokens = 0;
    for (const JunctionReader& reader : readers) {
      sum += reader.squares * reader.tokens;
      tokens += reader.tokens;
    }
    return sum / tokens;
  }

  static at::Tensor mean_column_sizes(const std::vector<JunctionReader>& readers) {
    at::Tensor sum;
    double rows = 0;
    for (const JunctionReader& reader : readers) {
      const auto own = static_cast<double>(reader.output->rule().out);
      const at::Tensor sizes = column_sizes(reader) * own;
      sum = sum.defined() ? sum + sizes : sizes;
      rows += own;
    }
    return sum / rows;
  }

  std::vector<JunctionReader> readers_of(const Junction& junction) const {
    const auto count = static_cast<int64_t>(junction.readers.size());
    const int64_t rows = std::clamp(kRowsOfAll / count, kLeastRows, kComparedRows);
    std::vector<JunctionReader> readers;
    bool has_products = true;
    for (const PartPlace& place : junction.readers) {
      const ExportOutput* output = find(place);
      if (output == nullptr || !output->is_quantized_anew) continue;
      const std::string name = importance_name(config_, place);
      const bool is_expert = is_expert_part(place.part);
      const TensorMatrix matrix{output->rule().in, place.expert,
                                is_expert ? config_.experts.num_experts : 1};
      const at::Tensor squares = importance_.of(name, matrix);
      const bool is_known = is_expert ? importance_.tensors.contains(name) : squares.defined();
      check<core::FormatError>(is_known, "importance matrix: says nothing of ", core::quote(name),
                               ", expected its inputs; it is of another model");
      // No token reached it.
      if (!squares.defined()) continue;
      readers.push_back({output, reader_.sampled_rows(*output->weight, rows), squares,
                         importance_.products_of(name), importance_.tokens_of(name, matrix)});
      has_products = has_products && readers.back().products.defined();
    }
    // Costs with and without products have other units.
    if (!has_products) {
      for (JunctionReader& reader : readers) reader.products = at::Tensor();
    }
    return readers;
  }

  const ModelConfig& config_;
  const RowReader& reader_;
  const std::map<std::string, const ExportOutput*>& outputs_;
  const Importance& importance_;
};

std::string base_of(const std::string& name) { return name.substr(0, name.rfind('.')); }

}  // namespace

void check_scales_fold(const ModelConfig& config) {
  const OptionSet others = options_in_use(config).without(kFolding);
  check<core::ConfigError>(others.is_empty(), "models.quantize: AWQ of a model with ",
                           names_of(others),
                           ", expected layers like Llama's, whose norms, values and ups take the "
                           "scales; use GPTQ");
}

InputScales::InputScales(const ModelConfig& config, const RowReader& reader,
                         const std::vector<ExportOutput>& outputs, const Importance& importance,
                         const dist::Group& group) {
  check_scales_fold(config);
  std::map<std::string, const ExportOutput*> by_base;
  for (const ExportOutput& output : outputs) {
    if (output.rule().name.ends_with(".weight")) by_base[output.rule().base()] = &output;
  }
  const ScaleSearch search(config, reader, by_base, importance);
  const std::vector<Junction> junctions = junctions_of(config);
  std::vector<at::Tensor> found;
  dist::run_together(group, [&] {
    for (size_t i = 0; i < junctions.size(); ++i) {
      const WeightRule& maker = search.find(junctions[i].maker)->rule();
      // A layer's four take unequal work, so each rank has another of them in the next layer.
      const int64_t turn = static_cast<int64_t>(i) + junctions[i].maker.layer;
      const bool is_own = turn % group.size() == group.rank();
      found.push_back(is_own ? search.factors_of(junctions[i])
                             : at::zeros({maker.is_vector() ? maker.in : maker.out}));
    }
  });
  at::Tensor all = at::cat(found);
  group.all_reduce(all);
  int64_t first = 0;
  for (size_t i = 0; i < junctions.size(); ++i) {
    const Junction& junction = junctions[i];
    at::Tensor factors = all.narrow(0, first, found[i].size(0));
    first += found[i].size(0);
    const ExportOutput& maker = *search.find(junction.maker);
    if (junction.is_norm()) {
      const FoldedNorm folded = fold_norm(reader.vector(*maker.weight, at::kFloat), factors,
                                          maker.dtype, config.norm_offset);
      norms_[maker.rule().base()] = folded.norm;
      factors = folded.factors;
    } else {
      rows_[maker.rule().base()] = factors;
    }
    const at::Tensor spread = Sharing(config, junction).spread(factors);
    for (const PartPlace& place : junction.readers) columns_[model_name(config, place)] = spread;
  }
}

at::Tensor InputScales::of_columns(const ExportOutput& output) const {
  const auto found = columns_.find(output.rule().base());
  return found == columns_.end() ? at::Tensor() : found->second;
}

at::Tensor InputScales::folded(const ExportOutput& output, int64_t first_row,
                               const at::Tensor& numbers) const {
  const WeightRule& rule = output.rule();
  const auto rows = rows_.find(base_of(rule.name));
  if (rule.is_vector()) {
    const auto norm = norms_.find(rule.base());
    if (norm != norms_.end()) return norm->second;
    // What weighs a shared expert is a matrix of one row.
    const at::Tensor columns = of_columns(output);
    if (columns.defined()) return numbers * columns;
    return rows == rows_.end() ? numbers : numbers / rows->second;
  }
  at::Tensor result = numbers;
  if (rows != rows_.end()) {
    result = result / rows->second.narrow(0, first_row, numbers.size(0)).unsqueeze(1);
  }
  const at::Tensor columns = of_columns(output);
  return columns.defined() ? result * columns : result;
}

}  // namespace weft::models
