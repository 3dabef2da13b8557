#include "weft/train/checkpoint/manifest.h"

#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>

#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/core/hash.h"
#include "weft/core/json.h"
#include "weft/train/slice_runs.h"

namespace weft::train {

using core::check;
using core::FormatError;
using core::Json;
using core::quote;

namespace {

constexpr const char* kFormat = "weft-checkpoint";
// Version 1 has no hash of itself.
constexpr int64_t kVersion = 2;
constexpr uint64_t kMaxBytes = uint64_t{1} << 30;

std::string hash_text(uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, hash);
  return text;
}

uint64_t parse_hash(const std::string& text, const std::string& where) {
  check<FormatError>(
      text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string::npos, where,
      ": hash: expected 16 hexadecimal digits, got ", quote(text));
  return std::stoull(text, nullptr, 16);
}

// Of all that the manifest says beside this hash.
uint64_t hash_of(const Json& without_hash) {
  const std::string text = core::dump_json(without_hash);
  return core::hash_bytes(std::as_bytes(std::span(text)));
}

// Throws FormatError unless the manifest, of a version that has one, has the hash of its own text.
void check_own_hash(Json json, const std::string& path) {
  const uint64_t saved =
      parse_hash(core::to_string(core::require(json, "hash", path), path + ": hash"), path);
  json.erase("hash");
  check<FormatError>(hash_of(json) == saved, path,
                     ": its text is not the one that was saved (hash); take another checkpoint");
}

Json to_json(const shard::Range& range) { return {range.start, range.length}; }

Json to_json(const shard::Layout& cut) {
  Json ranks = Json::array();
  for (const auto& ranges : cut.ranges) {
    Json list = Json::array();
    for (const shard::Range& range : ranges) list.push_back(to_json(range));
    ranks.push_back(std::move(list));
  }
  return {{"dim", cut.dim}, {"ranges", std::move(ranks)}};
}

Json to_json(const SavedFile& file) {
  Json slices = Json::array();
  for (const SavedSlice& slice : file.slices) {
    Json each = {
        {"name", slice.name}, {"elements", to_json(slice.elements)}, {"states", slice.states}};
    if (slice.model_rank != 0) each["model_rank"] = slice.model_rank;
    if (!slice.whole_states.empty()) each["whole_states"] = slice.whole_states;
    slices.push_back(std::move(each));
  }
  return {{"name", file.name},
          {"bytes", file.num_bytes},
          {"hash", hash_text(file.hash)},
          {"slices", std::move(slices)}};
}

const Json& list_of(const Json& object, const std::string& key, const std::string& where) {
  const Json& list = core::require(object, key, where);
  check<FormatError>(list.is_array(), where, ": ", key, ": expected a list");
  return list;
}

std::vector<std::string> strings(const Json& list, const std::string& where) {
  check<FormatError>(list.is_array(), where, ": expected a list of names");
  std::vector<std::string> names;
  for (const Json& each : list) names.push_back(core::to_string(each, where));
  return names;
}

shard::Range parse_range(const Json& json, const std::string& where) {
  check<FormatError>(json.is_array() && json.size() == 2, where, ": expected [start, length]");
  return {core::to_int64(json[0], where), core::to_int64(json[1], where)};
}

SavedParameter parse_parameter(const Json& json, const std::string& where) {
  SavedParameter parameter;
  for (const Json& size : list_of(json, "sizes", where)) {
    parameter.sizes.push_back(core::to_int64(size, where + ": sizes"));
  }
  const Json* cut = core::find(json, "cut", where);
  if (cut == nullptr) return parameter;
  shard::Layout layout;
  layout.dim = core::to_int64(core::require(*cut, "dim", where), where + ": dim");
  const bool is_dim = layout.dim >= 0 && layout.dim < static_cast<int64_t>(parameter.sizes.size());
  check<FormatError>(is_dim, where, ": a cut along dim ", layout.dim, " of ",
                     parameter.sizes.size());
  layout.size = parameter.sizes[static_cast<size_t>(layout.dim)];
  for (const Json& rank : list_of(*cut, "ranges", where)) {
    check<FormatError>(rank.is_array(), where, ": ranges: expected a list for each rank");
    auto& ranges = layout.ranges.emplace_back();
    for (const Json& range : rank) ranges.push_back(parse_range(range, where));
  }
  parameter.cut = std::move(layout);
  return parameter;
}

SavedSlice parse_slice(const Json& json, const std::string& where) {
  SavedSlice slice;
  slice.name = core::to_string(core::require(json, "name", where), where + ": name");
  slice.elements = parse_range(core::require(json, "elements", where), where);
  slice.states = strings(core::require(json, "states", where), where);
  if (const Json* rank = core::find(json, "model_rank", where)) {
    slice.model_rank = core::to_int64(*rank, where + ": model_rank");
  }
  if (const Json* whole = core::find(json, "whole_states", where)) {
    slice.whole_states = strings(*whole, where);
  }
  return slice;
}

SavedFile parse_file(const Json& json, const std::string& where) {
  SavedFile file;
  file.name = core::to_string(core::require(json, "name", where), where + ": name");
  check<FormatError>(!file.name.empty() && file.name[0] != '.' &&
                         file.name.find_first_of(std::string("/\0", 2)) == std::string::npos,
                     where, ": name: expected that of a file in the folder, got ",
                     quote(file.name));
  file.num_bytes = core::to_uint64(core::require(json, "bytes", where), where + ": bytes");
  file.hash = parse_hash(core::to_string(core::require(json, "hash", where), where), where);
  for (const Json& slice : list_of(json, "slices", where)) {
    file.slices.push_back(parse_slice(slice, where));
  }
  return file;
}

void check_slices(const Manifest& manifest, const std::string& path) {
  for (const SavedFile& file : manifest.files) {
    for (const SavedSlice& saved : file.slices) {
      const std::string where =
          core::join(path, ": ", quote(file.name), ": parameter ", quote(saved.name));
      check<FormatError>(manifest.parameters.count(saved.name) == 1, where,
                         ": is not among the parameters");
      try {
        check_slice(manifest.slice(saved), where);
      } catch (const core::ShapeError& error) {
        throw FormatError(error.what());
      }
    }
  }
}

}  // namespace

Slice Manifest::slice(const SavedSlice& saved) const {
  const SavedParameter& parameter = parameters.at(saved.name);
  return {saved.name, parameter.sizes, parameter.cut, saved.model_rank, saved.elements};
}

std::string to_text(const Manifest& manifest) {
  Json parameters = Json::object();
  for (const auto& [name, parameter] : manifest.parameters) {
    Json& each = parameters[name];
    each["sizes"] = parameter.sizes;
    if (parameter.cut) each["cut"] = to_json(*parameter.cut);
  }
  Json files = Json::array();
  for (const SavedFile& file : manifest.files) files.push_back(to_json(file));
  Json json = {{"format", kFormat},
               {"version", kVersion},
               {"step", manifest.step},
               {"trainer", core::parse_json(manifest.trainer, "train.save_checkpoint: trainer")},
               {"parameters", std::move(parameters)},
               {"files", std::move(files)}};
  json["hash"] = hash_text(hash_of(json));
  return core::dump_json(json) + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  const Json json = core::parse_json(text, path, {kMaxBytes, 64});
  const std::string format = core::to_string(core::require(json, "format", path), path);
  check<FormatError>(format == kFormat, path, ": format: expected '", kFormat, "', got ",
                     quote(format), "; give the folder of a checkpoint");
  const int64_t version = core::to_int64(core::require(json, "version", path), path);
  check<FormatError>(version >= 1 && version <= kVersion, path, ": version: expected 1 to ",
                     kVersion, ", got ", version, "; use the weft that wrote it");
  if (version > 1) check_own_hash(json, path);
  Manifest manifest;
  manifest.step = core::to_int64(core::require(json, "step", path), path + ": step");
  manifest.trainer = core::dump_json(core::require(json, "trainer", path));
  const Json& parameters = core::require(json, "parameters", path);
  check<FormatError>(parameters.is_object(), path, ": parameters: expected an object");
  for (const auto& [name, value] : parameters.items()) {
    manifest.parameters[name] =
        parse_parameter(value, core::join(path, ": parameter ", quote(name)));
  }
  for (const Json& file : list_of(json, "files", path)) {
    manifest.files.push_back(parse_file(file, core::join(path, ": file ", manifest.files.size())));
  }
  check_slices(manifest, path);
  return manifest;
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = folder + "/" + kManifestName;
  return parse_manifest(core::read_text_file(path, kMaxBytes), path);
}

void add_part(Manifest& manifest, const Manifest& part) {
  for (const auto& [name, parameter] : part.parameters) {
    const auto [place, is_new] = manifest.parameters.emplace(name, parameter);
    const SavedParameter& there = place->second;
    const bool is_same =
        there.sizes == parameter.sizes && there.cut.has_value() == parameter.cut.has_value() &&
        (!there.cut ||
         (there.cut->dim == parameter.cut->dim && there.cut->ranges == parameter.cut->ranges));
    check<core::InternalError>(is_new || is_same, "train.save_checkpoint: parameter ", quote(name),
                               ": ranks describe it otherwise");
  }
  manifest.files.insert(manifest.files.end(), part.files.begin(), part.files.end());
}

}  // namespace weft::train
