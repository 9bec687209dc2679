#pragma once

#include <deque>
#include <vector>

#include "completion/run.h"

namespace tessera::completion {

/// Prompts on their way into a batch that is at work, first come, first served. Rank 0 is asked for
/// them, and all ranks let the same ones in.
class Admitter {
 public:
  Admitter(CompletionRun& run, Recorder& recorder, comm::Communicator* world)
      : run_(run), recorder_(recorder), world_(world) {}

  std::vector<sample::TokenPrompt> operator()();

 private:
  // How many fit into the memory of this process beside those at work.
  int64_t fitting();

  CompletionRun& run_;
  Recorder& recorder_;
  comm::Communicator* const world_;
  std::deque<sample::TokenPrompt> waiting_;
  size_t refused_beside_ = 0;  // so many at work the first of them did not fit
};

}  // namespace tessera::completion
