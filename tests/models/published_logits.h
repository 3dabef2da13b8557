#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/models/family_files.h"
#include "tests/models/model_logits.h"
#include "tests/ops/tensor_checks.h"
#include "weft/models/load/load.h"

namespace weft::test {

/// Checks that 1 to 4 ranks give the logits that the published implementation gave for each of
/// these checkpoints, within 1e-4.
inline void expect_published_logits(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto file = io::TensorFile::open(family_path(name));
    const auto expected = read_reference(family_path(name, "ref.safetensors"));
    on_ranks([&](const dist::Group& group) {
      const auto model = models::load_model(*file, group).model;
      EXPECT_LE(largest_difference(logits_of(*model, expected.ids_BT), expected.logits_TV), 1e-4)
          << name;
    });
  }
}

}  // namespace weft::test
