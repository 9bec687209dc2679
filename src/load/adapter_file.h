#pragma once

#include <map>
#include <string>

#include "load/adapter_names.h"
#include "nn/weight_change.h"

namespace tessera::load {

/// Reads the weight changes of an adapter file, by part and name: LoRA (Hu et al. 2021), LoHa, LoKr
/// (Yeh et al. 2023) and DoRA, already multiplied by `strength` and the file's alphas. Alphas come
/// from the file, from `lora_adapter_metadata`, or from an adapter_config.json in the same folder.
/// Throws Error(model) naming the tensor for an unknown layer, an incomplete or mismatched pair,
/// invalid numbers, and a layer changed twice.
std::map<std::string, nn::WeightChanges> read_adapter(const std::string& path, double strength,
                                                      const AdapterNames& names);

}  // namespace tessera::load
