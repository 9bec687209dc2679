#pragma once

#include <memory>
#include <vector>

#include "runtime/adapters.h"
#include "tessera/request.h"

namespace tessera::runtime {

struct ModelState;

/// Reads the adapters of a request for a model; null: it has none. Throws Error(model) for files
/// that do not fit, before a weight of the model is read.
std::shared_ptr<const Adapters> load_adapters(const ModelState& state,
                                              const std::vector<Lora>& loras, bool merged);

/// The adapters of a forward pass, which says what they change. Throws Error(usage) for a component
/// that takes none.
std::shared_ptr<const Adapters> load_adapters(const ModelState& state,
                                              const ForwardRequest& request,
                                              const RunControl& control);

}  // namespace tessera::runtime
