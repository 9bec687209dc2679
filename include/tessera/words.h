#pragma once

#include <string>
#include <vector>

namespace tessera {

/// The word that stands for a choice on the command line and in JSON: of DeviceKind,
/// ExpertActivation, FinishReason, KvCache, ModelPart, NoiseSource, PassKind, Phase, PlanAxis,
/// Precision, SchedulerName, StopAtEos.
template <class Choice>
const char* word_of(Choice choice);
/// The words of all choices of a kind.
template <class Choice>
std::vector<std::string> words_of();
/// The choice that a word stands for. Throws Error(usage) that names `what`, and lists the words,
/// for one that stands for none.
template <class Choice>
Choice choice_of(const std::string& word, const std::string& what);

}  // namespace tessera
