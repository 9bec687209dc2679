#include "completion/admitter.h"

#include <utility>

#include "base/fail.h"
#include "cluster/agree.h"
#include "cluster/share_prompts.h"
#include "completion/prompts.h"
#include "completion/streamed_experts.h"

namespace tessera::completion {

std::vector<sample::TokenPrompt> Admitter::operator()() {
  CompleteRequest more = run_.request;
  more.prompts.clear();
  more.chat.clear();
  more.prompt_ids = cluster::share_prompts(world_, [&] {
    auto arriving = run_.control.join();
    for (const auto& ids : arriving) run_.lease.find(ids);
    return arriving;
  });
  if (!more.prompt_ids.empty())
    for (auto& prompt : prompts_of(more, *run_.state.language, run_.policy)) {
      run_.lease.tell(static_cast<int>(arrived_++), prompt);
      waiting_.push_back(std::move(prompt));
    }
  std::vector<sample::TokenPrompt> prompts;
  if (waiting_.empty() || (more.prompt_ids.empty() && recorder_.working.size() == refused_beside_))
    return prompts;
  int64_t fit = 0;
  run_.state.ranks().all_or_none(
      "lets prompts join", [&] { fit = fitting(); }, world_);
  fit = cluster::least_of(world_, fit);
  if (recorder_.cache)
    recorder_.cache->resize(
        resident_experts(run_.state, run_.experts, world_ ? world_->rank() : 0));
  for (; fit > 0; --fit) {
    recorder_.add(waiting_.front());
    prompts.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  refused_beside_ = recorder_.working.size();
  return prompts;
}

int64_t Admitter::fitting() {
  if (world_ && !run_.state.ranks().speaks(world_->rank())) return cluster::kAnyNumber;
  std::vector<sample::TokenPrompt> together;
  for (const int sequence : recorder_.working)
    together.push_back(recorder_.prompts[static_cast<size_t>(sequence)]);
  int64_t fit = 0;
  for (; fit < std::ssize(waiting_); ++fit) {
    together.push_back(waiting_[static_cast<size_t>(fit)]);
    const std::string reason = run_.misfit(together);
    require(reason.empty() || together.size() > 1, ErrorCode::memory, "{}", reason);
    if (!reason.empty()) break;
  }
  return fit;
}

}  // namespace tessera::completion
