#pragma once

#include <deque>
#include <vector>

#include "completion/run.h"

namespace tessera::completion {

/// Admits prompts into a running batch, first come, first served. Rank 0 asks for new prompts, and
/// all ranks admit the same prompts.
class Admitter {
 public:
  Admitter(CompletionRun& run, Recorder& recorder, comm::Communicator* world)
      : run_(run), recorder_(recorder), world_(world), arrived_(run.prompts.size()) {}

  std::vector<sample::TokenPrompt> operator()();

 private:
  // The number of prompts that fit into the memory of this process beside the running sequences.
  int64_t fitting();

  CompletionRun& run_;
  Recorder& recorder_;
  comm::Communicator* const world_;
  std::deque<sample::TokenPrompt> waiting_;
  size_t arrived_;             // prompts so far, with those that wait
  size_t refused_beside_ = 0;  // running sequences when the first prompt last did not fit
};

}  // namespace tessera::completion
