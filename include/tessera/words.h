#pragma once

#include <string>
#include <vector>

namespace tessera {

/// The word of a choice on the command line and in JSON, for DeviceKind, ExpertActivation,
/// FinishReason, ImageFitting, KvCache, ModelPart, NoiseSource, PassKind, Phase, PlanAxis,
/// Precision, SchedulerName, StepCacheRule, StopAtEos.
template <class Choice>
const char* word_of(Choice choice);
/// The words of all choices of a kind.
template <class Choice>
std::vector<std::string> words_of();
/// The choice for a word. Throws Error(usage) with `what` and all words for an unknown
/// word.
template <class Choice>
Choice choice_of(const std::string& word, const std::string& what);

}  // namespace tessera
