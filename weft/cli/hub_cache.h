#pragma once

#include <string>

namespace weft::cli {

/// The model that a name like "org/name" means in the cache of Hugging Face's hub, as its own tools
/// fill it: $HF_HUB_CACHE, else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else
/// ~/.cache/huggingface/hub. "org/name@REVISION" means a branch, tag or commit (default: main), and
/// "org/name:TAG" the GGUF file with TAG in its name. Returns the snapshot's folder, or the GGUF
/// file in a snapshot without config.json; `name` itself if it is a path, or the cache has no such
/// model. Throws ConfigError where there are several GGUF files, or none, to choose from.
std::string path_in_hub_cache(const std::string& name);

}  // namespace weft::cli
