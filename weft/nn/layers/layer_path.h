#pragma once

#include <string>
#include <string_view>

namespace weft::nn {

/// A layer's own path in a module, however many layers are wrapped around its weight:
/// "layers.0.wq.inner.base" is "layers.0.wq", because the names of wrapped modules are not places
/// in the model.
inline std::string place_of(std::string_view path) {
  for (const std::string_view wrapper : {".base", ".inner"}) {
    while (path.ends_with(wrapper)) path.remove_suffix(wrapper.size());
  }
  // A layer that is itself the module described.
  return std::string(path == "inner" || path == "base" ? "" : path);
}

}  // namespace weft::nn
