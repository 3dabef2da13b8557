// docs/train_config.md against the table of fields.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "weft/core/error.h"
#include "weft/train/config/config_fields.h"

namespace weft::train {
namespace {

// As TOML has it.
std::string toml_text(const ConfigField& field) {
  std::ostringstream out;
  if (const auto* flag = std::get_if<bool*>(&field.value)) out << (**flag ? "true" : "false");
  if (const auto* whole = std::get_if<int64_t*>(&field.value)) out << **whole;
  if (const auto* number = std::get_if<double*>(&field.value)) out << **number;
  if (const auto* text = std::get_if<std::string*>(&field.value)) out << '"' << **text << '"';
  if (const auto* wholes = std::get_if<std::vector<int64_t>*>(&field.value)) {
    out << core::list_text(**wholes);
  }
  if (const auto* numbers = std::get_if<std::vector<double>*>(&field.value)) {
    out << core::list_text(**numbers);
  }
  if (const auto* texts = std::get_if<std::vector<std::string>*>(&field.value)) {
    std::vector<std::string> quoted;
    for (const std::string& text : **texts) quoted.push_back('"' + text + '"');
    out << core::list_text(quoted);
  }
  return out.str();
}

// "section.key default" of every row.
std::vector<std::string> documented_rows() {
  std::ifstream file(WEFT_SOURCE_DIR "/docs/train_config.md");
  std::vector<std::string> rows;
  std::string section;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## [")) section = line.substr(4, line.find(']') - 4);
    if (!line.starts_with("| `")) continue;
    const size_t key_end = line.find('`', 3);
    const size_t value = line.find('`', key_end + 1) + 1;
    rows.push_back(section + "." + line.substr(3, key_end - 3) + " " +
                   line.substr(value, line.find('`', value) - value));
  }
  return rows;
}

TEST(ConfigDocumentation, ListsEveryKeyWithItsDefaultInOrder) {
  TrainConfig config;
  std::vector<std::string> rows;
  for (const ConfigField& field : config_fields(config)) {
    rows.push_back(field.name + " " + toml_text(field));
  }
  EXPECT_EQ(documented_rows(), rows);
}

}  // namespace
}  // namespace weft::train
