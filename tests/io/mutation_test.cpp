#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/core/temp_dir.h"
#include "tests/io/gguf_builder.h"
#include "tests/io/open_error.h"
#include "tests/io/safetensors_builder.h"
#include "weft/io/formats/header_checks.h"
#include "weft/io/formats/write_safetensors.h"

// Damaged files may only give a weft error, or still be a right file, whose tensors can be read.

namespace weft::io {
namespace {

using testing::error_text;
using testing::GgufBuilder;
using testing::TempDir;

using Random = std::mt19937_64;

std::string random_bytes(Random& random, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

struct RandomTensor {
  std::string name;
  Dtype dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

std::vector<RandomTensor> random_tensors(Random& random, Dtype last, bool has_zero) {
  std::vector<RandomTensor> tensors(random() % 8);
  for (RandomTensor& tensor : tensors) {
    tensor.name = core::join("t.", &tensor - tensors.data(), ".", random() % 1000);
    tensor.dtype = static_cast<Dtype>(random() % (static_cast<uint64_t>(last) + 1));
    for (uint64_t i = random() % 4; i > 0; --i) {
      tensor.shape.push_back(static_cast<int64_t>(random() % 5) + (has_zero ? 0 : 1));
    }
    const int64_t block = info(tensor.dtype).block_elements;
    if (block > 1) tensor.shape.push_back(block * static_cast<int64_t>(1 + random() % 2));
    tensor.bytes = random_bytes(random, tensor_bytes(tensor.dtype, tensor.shape).value());
  }
  return tensors;
}

// Opens, and reads every tensor.
std::string read_all(const std::string& path) {
  return error_text([&] {
    const auto source = TensorFile::open(path);
    for (const TensorMeta& tensor : source->tensors()) {
      EXPECT_EQ(testing::tensor_text(*source, tensor.name).size(), tensor.num_bytes);
    }
  });
}

void expect_equal(const TensorFile& source, const std::vector<RandomTensor>& tensors) {
  ASSERT_EQ(source.tensors().size(), tensors.size());
  for (const RandomTensor& tensor : tensors) {
    const TensorMeta& meta = source.require(tensor.name);
    EXPECT_EQ(meta.dtype, tensor.dtype);
    EXPECT_EQ(meta.shape, tensor.shape);
    EXPECT_EQ(testing::tensor_text(source, tensor.name), tensor.bytes);
  }
}

std::vector<TensorToWrite> to_write(const std::vector<RandomTensor>& tensors) {
  std::vector<TensorToWrite> list;
  for (const RandomTensor& tensor : tensors) {
    list.push_back(
        {tensor.name, tensor.dtype, tensor.shape, std::as_bytes(std::span(tensor.bytes))});
  }
  return list;
}

uint32_t gguf_type(Dtype dtype) {
  uint32_t type = 0;
  while (core::dtype_from_gguf(type) != dtype) ++type;
  return type;
}

std::string random_gguf(Random& random, std::vector<RandomTensor>& tensors) {
  GgufBuilder builder;
  builder.alignment = uint64_t{8} << (random() % 5);
  builder.keys = {
      testing::gguf_key("general.alignment", GgufType::kU32,
                        testing::raw(static_cast<uint32_t>(builder.alignment))),
      testing::gguf_key("a.list", GgufType::kArray,
                        testing::gguf_array(GgufType::kString, 2,
                                            testing::gguf_text("one") + testing::gguf_text("")))};
  for (RandomTensor& tensor : tensors) {
    std::vector<uint64_t> dims(tensor.shape.rbegin(), tensor.shape.rend());
    builder.tensors.push_back({tensor.name, dims, gguf_type(tensor.dtype), tensor.bytes});
  }
  return builder.build();
}

// Types that both a plain GGUF and this test's generator can have.
std::vector<RandomTensor> random_gguf_tensors(Random& random) {
  std::vector<RandomTensor> tensors;
  while (tensors.empty()) {
    for (RandomTensor& tensor : random_tensors(random, Dtype::kQ6K, false)) {
      const bool is_known = [&] {
        for (uint32_t type = 0; type < 31; ++type) {
          if (core::dtype_from_gguf(type) == tensor.dtype) return true;
        }
        return false;
      }();
      if (is_known) tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

// Changes one byte at a time: each of the first `count`, to each of some values.
void expect_mutations_survive(const std::string& name, const std::string& bytes, size_t count,
                              Random& random) {
  const TempDir dir;
  dir.write(name, bytes);
  for (size_t at = 0; at < std::min(count, bytes.size()); ++at) {
    const char flipped = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
    for (const char value : {'\0', '\xff', flipped, static_cast<char>(random())}) {
      const std::string text = read_all(dir.patch(name, at, value));
      EXPECT_TRUE(text == "no error" || text.starts_with("FormatError: ")) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
      EXPECT_LT(text.size(), 1000u);
    }
    dir.patch(name, at, bytes[at]);
  }
}

TEST(RandomFiles, SafetensorsReadBackAsWritten) {
  const TempDir dir;
  Random random(21);
  for (int round = 0; round < 50; ++round) {
    const auto tensors = random_tensors(random, Dtype::kF64, true);
    write_safetensors(dir.at("m.safetensors"), to_write(tensors), {{"round", "x\"\n"}});
    const auto source = TensorFile::open(dir.at("m.safetensors"));
    expect_equal(*source, tensors);
    EXPECT_EQ(std::get<std::string>(source->metadata().at("round")), "x\"\n");
  }
}

TEST(RandomFiles, GgufReadsBackAsWritten) {
  const TempDir dir;
  Random random(22);
  for (int round = 0; round < 50; ++round) {
    auto tensors = random_gguf_tensors(random);
    const auto source = TensorFile::open(dir.write("m.gguf", random_gguf(random, tensors)));
    expect_equal(*source, tensors);
  }
}

TEST(Mutations, OfSafetensorsGiveOnlyWeftErrors) {
  const TempDir dir;
  Random random(23);
  for (int round = 0; round < 6; ++round) {
    write_safetensors(dir.at("m.safetensors"), to_write(random_tensors(random, Dtype::kF64, true)),
                      {{"a", "b"}});
    expect_mutations_survive("m.safetensors", dir.read("m.safetensors"), 900, random);
  }
}

TEST(Mutations, OfGgufGiveOnlyWeftErrors) {
  Random random(24);
  for (int round = 0; round < 6; ++round) {
    auto tensors = random_gguf_tensors(random);
    expect_mutations_survive("m.gguf", random_gguf(random, tensors), 700, random);
  }
}

TEST(Mutations, TruncationsGiveOnlyWeftErrors) {
  const TempDir dir;
  Random random(25);
  for (int round = 0; round < 5; ++round) {
    auto tensors = random_gguf_tensors(random);
    std::string gguf = random_gguf(random, tensors);
    const auto whole = TensorFile::open(dir.write("t.gguf", gguf));
    // The padding after the last tensor may be missing.
    gguf.resize(whole->tensors().back().offset + whole->tensors().back().num_bytes);
    write_safetensors(dir.at("m.safetensors"), to_write(random_tensors(random, Dtype::kF64, true)),
                      {});
    const std::string safetensors = dir.read("m.safetensors");
    for (size_t i = 0; i < 64; ++i) {
      EXPECT_TRUE(read_all(dir.write("t.gguf", gguf.substr(0, gguf.size() * i / 64)))
                      .starts_with("FormatError: "))
          << i;
      EXPECT_TRUE(
          read_all(dir.write("t.safetensors", safetensors.substr(0, safetensors.size() * i / 64)))
              .starts_with("FormatError: "))
          << i;
    }
  }
}

}  // namespace
}  // namespace weft::io
