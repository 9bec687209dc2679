#pragma once

#include <map>
#include <string>

#include "load/adapter_names.h"
#include "nn/weight_change.h"

namespace tessera::load {

/// The changes that an adapter file makes to the parts of a model, by their names: LoRA (Hu et al.
/// 2021), LoHa, LoKr (Yeh et al. 2023) and DoRA, `strength` and the file's alphas multiplied in.
/// Alphas stand in the file, in its `lora_adapter_metadata`, or in an adapter_config.json beside
/// it. Throws Error(model) that names the tensor for one that stands for no layer of the model, a
/// pair that is not whole or does not fit, numbers that are none, and a layer that is changed
/// twice.
std::map<std::string, nn::WeightChanges> read_adapter(const std::string& path, double strength,
                                                      const AdapterNames& names);

}  // namespace tessera::load
