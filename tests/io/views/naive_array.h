#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "weft/io/views/view.h"

namespace weft::testing {

/// The reference for io::View: an array that holds its elements' numbers, one by one.
struct NaiveArray {
  std::vector<int64_t> shape;
  std::vector<int64_t> values;

  /// Elements first, first + 1, …
  static NaiveArray of(std::vector<int64_t> shape, int64_t first = 0) {
    NaiveArray array{std::move(shape), {}};
    array.values.resize(array.count());
    std::iota(array.values.begin(), array.values.end(), first);
    return array;
  }

  size_t count() const {
    int64_t product = 1;
    for (const int64_t size : shape) product *= size;
    return static_cast<size_t>(product);
  }

  int64_t at(const std::vector<int64_t>& index) const {
    int64_t flat = 0;
    for (size_t i = 0; i < shape.size(); ++i) flat = flat * shape[i] + index[i];
    return values[static_cast<size_t>(flat)];
  }

  /// The array of `new_shape` whose element at an index is this one's at `source(index)`.
  template <class Source>
  NaiveArray gathered(std::vector<int64_t> new_shape, const Source& source) const {
    NaiveArray result{std::move(new_shape), {}};
    std::vector<int64_t> index(result.shape.size(), 0);
    for (size_t left = result.count(); left > 0; --left) {
      result.values.push_back(at(source(index)));
      for (size_t i = index.size(); i > 0 && ++index[i - 1] == result.shape[i - 1]; --i) {
        index[i - 1] = 0;
      }
    }
    return result;
  }

  NaiveArray narrow(size_t dim, int64_t start, int64_t length) const {
    std::vector<int64_t> to = shape;
    to[dim] = length;
    return gathered(to, [&](std::vector<int64_t> index) {
      index[dim] += start;
      return index;
    });
  }
  NaiveArray select(size_t dim, int64_t at_index) const {
    std::vector<int64_t> to = shape;
    to.erase(to.begin() + static_cast<ptrdiff_t>(dim));
    return gathered(to, [&](std::vector<int64_t> index) {
      index.insert(index.begin() + static_cast<ptrdiff_t>(dim), at_index);
      return index;
    });
  }
  NaiveArray permute(const std::vector<int64_t>& order) const {
    std::vector<int64_t> to;
    for (const int64_t dim : order) to.push_back(shape[static_cast<size_t>(dim)]);
    return gathered(to, [&](const std::vector<int64_t>& index) {
      std::vector<int64_t> from(index.size());
      for (size_t i = 0; i < index.size(); ++i) from[static_cast<size_t>(order[i])] = index[i];
      return from;
    });
  }
  NaiveArray reshape(std::vector<int64_t> to) const { return {std::move(to), values}; }
  NaiveArray repeat(size_t dim, int64_t times) const {
    std::vector<int64_t> to = shape;
    to[dim] *= times;
    return gathered(to, [&](std::vector<int64_t> index) {
      index[dim] /= times;
      return index;
    });
  }
  static NaiveArray cat(const std::vector<NaiveArray>& parts, size_t dim) {
    std::vector<int64_t> to = parts[0].shape;
    to[dim] = 0;
    for (const NaiveArray& part : parts) to[dim] += part.shape[dim];
    NaiveArray result{to, {}};
    std::vector<int64_t> index(to.size(), 0);
    for (size_t left = result.count(); left > 0; --left) {
      std::vector<int64_t> local = index;
      size_t which = 0;
      while (local[dim] >= parts[which].shape[dim]) local[dim] -= parts[which++].shape[dim];
      result.values.push_back(parts[which].at(local));
      for (size_t i = index.size(); i > 0 && ++index[i - 1] == to[i - 1]; --i) index[i - 1] = 0;
    }
    return result;
  }
};

/// A plain tensor in a file: elements lie from `offset` on.
inline io::TensorMeta tensor_meta(const std::string& name, io::Dtype dtype,
                                  std::vector<int64_t> shape, uint64_t offset = 0) {
  io::TensorMeta meta;
  meta.name = name;
  meta.dtype = dtype;
  meta.shape = std::move(shape);
  meta.offset = offset;
  uint64_t elements = 1;
  for (const int64_t size : meta.shape) elements *= static_cast<uint64_t>(size);
  const io::DtypeInfo& type = io::info(dtype);
  meta.num_bytes = elements / static_cast<uint64_t>(type.block_elements) *
                   static_cast<uint64_t>(type.block_bytes);
  return meta;
}

/// The numbers of the units that a view's runs go through, in order: file offset / unit bytes.
inline std::vector<int64_t> unit_numbers(const io::View& view) {
  std::vector<int64_t> numbers;
  const auto unit = static_cast<uint64_t>(view.packing().unit_bytes());
  view.for_each_run([&](const io::ByteRun& run) {
    for (uint64_t at = 0; at < run.num_bytes; at += unit) {
      numbers.push_back(static_cast<int64_t>((run.offset + at) / unit));
    }
  });
  return numbers;
}

/// A view of a whole tensor of bytes.
inline io::View tensor(const std::vector<int64_t>& shape, uint64_t offset = 0,
                       const std::string& name = "w") {
  return io::View::of(tensor_meta(name, io::Dtype::kU8, shape, offset));
}

/// Fails unless `view` has the shape and the elements of `array`.
inline void expect_same(const io::View& view, const NaiveArray& array) {
  EXPECT_EQ(view.shape(), array.shape);
  EXPECT_EQ(unit_numbers(view), array.values);
}

}  // namespace weft::testing
