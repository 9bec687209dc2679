#pragma once

#include <optional>
#include <string>

namespace tessera::load {

/// The run that a distilled model or adapter is made for (Turbo, Lightning, Hyper, LCM, ...).
struct FewSteps {
  int steps = 0;
  bool guided = false;  ///< it is to be run with guidance ("CFG")
  bool operator==(const FewSteps&) const = default;
};

/// The run that a published name tells: "Hyper-SD3-4steps-CFG-lora" -> 4 steps with guidance. Such
/// a name holds a word of distillation and a number of steps up to 32; others tell nothing.
std::optional<FewSteps> few_steps_of(const std::string& name);

/// Whether a name holds the word "turbo".
bool says_turbo(const std::string& name);

/// The run that an adapter file tells in its name, in "modelspec.title", "modelspec.usage_hint" or
/// "ss_output_name" of its header, or in the name of its folder, in this order. Throws
/// Error(model) for a file that cannot be read.
std::optional<FewSteps> few_steps_of_adapter(const std::string& path);

}  // namespace tessera::load
