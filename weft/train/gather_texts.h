#pragma once

#include <string>
#include <vector>

#include "weft/dist/group.h"

namespace weft::train {

/// All ranks' texts, by rank; they may be of any lengths, without NUL bytes. Collective over
/// `group`.
std::vector<std::string> gather_texts(const dist::Group& group, const std::string& text);

}  // namespace weft::train
