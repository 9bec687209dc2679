#pragma once

#include <string>

#include "base/json.h"
#include "load/diffusers_folder.h"

namespace tessera::load {

/// In what a config.json says that weights are stored, by the "quantization_config" that
/// quantised_config() writes; this is taken out, so that what is left describes the model as it
/// was. Those of others stay, for open_weights() to refuse. Throws Error(model) naming `file`.
Quantised take_quantisation(base::Json& config, const std::string& file);
/// In what a component's weights are written.
struct QuantisedForm {
  bool experts = true, int4 = false;  ///< routed experts are in int8, or in int4
  bool dense = false;                 ///< a language model's other matrices are in int8
  std::string rules{};  ///< of a pipeline's quantised products (load/quantise_rules.h); "": none
  bool panels = false;  ///< some lie in that order
};
/// The text of a config.json with that key, all others as and where they are.
std::string quantised_config(const std::string& path, const QuantisedForm& form);

}  // namespace tessera::load
