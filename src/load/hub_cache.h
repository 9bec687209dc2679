#pragma once

#include <string>

namespace tessera::load {

/// Whether a text has the form of a repository's id on a model hub: "organisation/name".
bool is_repository_id(const std::string& text);

/// Where the hub's clients keep what they downloaded: HF_HUB_CACHE, else HF_HOME/hub, else
/// huggingface/hub in XDG_CACHE_HOME or ~/.cache. "" when there is no home.
std::string hub_cache();

/// The folder of a repository in the cache: the snapshot that refs/main names, else the newest. ""
/// when there is none. Never asks a network.
std::string cached_snapshot(const std::string& cache, const std::string& id);

}  // namespace tessera::load
