#pragma once

#include <string>

#include "base/json.h"
#include "load/diffusers_folder.h"

namespace tessera::load {

/// Reads the storage format of weights from the "quantization_config" of quantised_config() and
/// removes the key, so that the remaining config describes the original model. Configs of other
/// programs stay, for open_weights() to refuse. Throws Error(model) naming `file`.
Quantised take_quantisation(base::Json& config, const std::string& file);
/// Format of a component's written weights.
struct QuantisedForm {
  bool experts = true, int4 = false;  ///< routed experts are int8, or int4
  bool dense = false;                 ///< other matrices of a language model are int8
  std::string rules{};                ///< rules of a pipeline (load/quantise_rules.h); "": none
  bool panels = false;                ///< some weights are in panel order
};
/// Text of a part's config.json, or of the description by its file, with the added key; all other
/// keys stay in place. A part without quantised weights (no experts, no rules) gets none.
std::string quantised_config(const Component& part, const QuantisedForm& form);

}  // namespace tessera::load
