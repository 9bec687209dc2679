#pragma once

#include <string>

namespace tessera::runtime {

/// The folder of a model. A name without '/' that is no folder here is looked up where shipped
/// models are: TESSERA_MODELS, share/tessera/models beside the program's folder, where the build
/// says; "organisation/name" in the hub's cache. Throws Error(model) for what is nowhere.
std::string resolve_model(const std::string& model);

}  // namespace tessera::runtime
