#pragma once

#include <string>

namespace tessera::runtime {

/// Finds the folder of a model. A name without '/' and without a folder here is looked up among
/// shipped models: TESSERA_MODELS, share/tessera/models beside the program's folder, the folder set
/// by the build. "organisation/name" is looked up in the hub's cache. Throws Error(model) if
/// nothing is found.
std::string resolve_model(const std::string& model);

}  // namespace tessera::runtime
