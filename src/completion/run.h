#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "completion/prefix_cache.h"
#include "completion/recorder.h"
#include "completion/token_run.h"
#include "runtime/model_state.h"
#include "tessera/report.h"

namespace tessera::completion {

/// A checked request, with the state that ranks of this process share.
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
  /// Reserves memory for a larger batch. Returns the reason if the batch does not fit, else "";
  /// sets the number of experts that stay.
  std::function<std::string(TokenRun& run)> admit;
  PrefixLease& lease;            // keys of earlier requests, later this request's
  std::atomic<int64_t> experts;  // as in TokenRun; rank 0 updates the count when prompts join
  std::vector<std::shared_ptr<const nn::TokenModel>> networks{};  // by rank, only this process's
  std::mutex mutex{};
  Report report{};  // work of each rank of this process

  const models::TokenSpec& spec() const { return state.language->spec(); }
  std::shared_ptr<const nn::TokenModel> model(int rank) const;
  void describe(CompleteResult& result) const;
  /// The reason why these prompts do not fit into memory together; "": they fit, with `experts` in
  /// memory.
  std::string misfit(const std::vector<sample::TokenPrompt>& prompts);
  /// Loads the networks of this process.
  void load();
  /// Runs all ranks of this process.
  CompleteResult launch();

 private:
  CompleteResult run(comm::Communicator* world);
};

}  // namespace tessera::completion
