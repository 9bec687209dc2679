#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "completion/kept_prefix.h"
#include "completion/recorder.h"
#include "completion/token_run.h"
#include "runtime/model_state.h"
#include "tessera/report.h"

namespace tessera::completion {

/// A checked request, and what the ranks of this process share while they answer it.
struct CompletionRun {
  runtime::ModelState& state;
  const CompleteRequest& request;
  const CompleteControl& control;
  const PassWatch& watch;
  sample::DecodingPolicy policy;
  nn::SelectionRule rule;
  sample::SpecialIds special;
  std::vector<sample::TokenPrompt> prompts;
  const tokenizer::ByteLevelBpe* tokens;
  runtime::RunMeters meters;
  /// Takes memory for a larger batch: why it does not fit, or "", and how many experts then stay.
  std::function<std::string(TokenRun& run)> admit;
  KeptPrefix::State::Keys& keys;  // of an earlier request, then of this one; no ranks: none kept
  std::atomic<int64_t> experts;   // as TokenRun says; rank 0 changes it when prompts join
  std::vector<std::shared_ptr<const nn::TokenModel>> networks{};  // by rank, of those here
  std::mutex mutex{};
  Report report{};  // of the ranks of this process: what each did

  const models::TokenSpec& spec() const { return state.language->spec(); }
  std::shared_ptr<const nn::TokenModel> model(int rank) const;
  void describe(CompleteResult& result) const;
  /// Why these prompts do not fit into memory together; "": they do, with `experts` beside them.
  std::string misfit(const std::vector<sample::TokenPrompt>& prompts);
  /// On all ranks of this process.
  CompleteResult all();

 private:
  CompleteResult run(comm::Communicator* world);
};

}  // namespace tessera::completion
