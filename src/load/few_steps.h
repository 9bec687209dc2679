#pragma once

#include <optional>
#include <string>

namespace tessera::load {

/// A distilled model or adapter is made for this run (Turbo, Lightning, Hyper, LCM, ...).
struct FewSteps {
  int steps = 0;
  bool guided = false;  ///< the run uses guidance ("CFG")
  bool operator==(const FewSteps&) const = default;
};

/// Reads the run from a published name: "Hyper-SD3-4steps-CFG-lora" -> 4 steps with guidance. The
/// name must hold a word of distillation and a number of steps up to 32; else returns nothing.
std::optional<FewSteps> few_steps_of(const std::string& name);

/// Returns whether a name holds the word "turbo".
bool says_turbo(const std::string& name);

/// Reads the run of an adapter from the file's name, from "modelspec.title", "modelspec.usage_hint"
/// or "ss_output_name" of the header, or from the folder's name, in this order. Throws Error(model)
/// for an unreadable file.
std::optional<FewSteps> few_steps_of_adapter(const std::string& path);

}  // namespace tessera::load
