#pragma once

#include <string>

#include "base/json.h"
#include "load/diffusers_folder.h"

namespace tessera::load {

/// In what a config.json says that weights are stored, by the "quantization_config" that
/// quantised_config() writes; this is taken out, so that what is left describes the model as it
/// was. Those of others stay, for open_weights() to refuse. Throws Error(model) naming `file`.
Quantised take_quantisation(base::Json& config, const std::string& file);
/// The text of a config.json with that key, all others as and where they are. `panels`: some of the
/// weights lie in that order.
std::string quantised_config(const std::string& path, bool int4, bool dense, bool panels);

}  // namespace tessera::load
