#pragma once

#include <memory>
#include <vector>

#include "runtime/adapters.h"
#include "tessera/request.h"

namespace tessera::runtime {

struct ModelState;

/// Reads the adapters of a request for a model; null: no adapters. Throws Error(model) for files
/// that do not fit, before any weight of the model is read.
std::shared_ptr<const Adapters> load_adapters(const ModelState& state,
                                              const std::vector<Lora>& loras, bool merged);

/// Reads the adapters of a forward pass and notes their changes. Throws Error(usage) for a
/// component without adapters.
std::shared_ptr<const Adapters> load_adapters(const ModelState& state,
                                              const ForwardRequest& request,
                                              const RunControl& control);

}  // namespace tessera::runtime
