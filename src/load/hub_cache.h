#pragma once

#include <string>

namespace tessera::load {

/// True for the form of a repository id on a model hub: "organisation/name".
bool is_repository_id(const std::string& text);

/// Download cache of the hub's clients: HF_HUB_CACHE, else HF_HOME/hub, else huggingface/hub in
/// XDG_CACHE_HOME or ~/.cache. "" without a home folder.
std::string hub_cache();

/// Folder of a repository in the cache: the snapshot of refs/main, else the newest. "" if there is
/// none. Never uses the network.
std::string cached_snapshot(const std::string& cache, const std::string& id);

}  // namespace tessera::load
