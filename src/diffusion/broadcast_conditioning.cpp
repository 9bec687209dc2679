#include "diffusion/broadcast_conditioning.h"

#include <algorithm>

#include "base/fail.h"
#include "diffusion/conditioning.h"
#include "diffusion/parts.h"

namespace tessera::diffusion {
namespace {

using tensor::Tensor;

constexpr comm::Tag kText{"text", -1};

// The text part of a job's conditioning.
nn::Conditioning text_of(const runtime::ModelState& state, const Job& job) {
  nn::Conditioning text;
  for (const auto& [input, argument] : state.spec->text_inputs) {
    const auto it = job.asked.conditioning.tensors.find(argument);
    if (it != job.asked.conditioning.tensors.end()) text.tensors.insert(*it);
  }
  return text;
}

void send(const runtime::ModelState& state, comm::Communicator& ranks, const Job& job) {
  const nn::Conditioning text = text_of(state, job);
  for (int rank = 1; rank < ranks.size(); ++rank) {
    const std::vector<int> sequences = sequences_of(state.options.plan, job, rank);
    if (sequences.empty()) continue;
    for (const auto& [name, x] : take_sequences(text, sequences).tensors)
      ranks.send(rank, x, kText);
  }
}

void receive(const runtime::ModelState& state, comm::Communicator& ranks, Job& job) {
  const std::vector<int> sequences = sequences_of(state.options.plan, job, ranks.rank());
  if (sequences.empty()) return;
  for (const auto& [name, zeros] : text_of(state, job).tensors) {
    const Tensor own_part = ranks.receive(0, kText).wait();
    const auto count = static_cast<int64_t>(sequences.size());
    require(own_part.dtype() == zeros.dtype() && own_part.shape() == zeros.shape().with(0, count),
            ErrorCode::rank, "rank 0 encodes texts to '{}' {} {} for {} sequences of {} {}", name,
            tensor::name_of(own_part.dtype()), own_part.shape().str(), count,
            tensor::name_of(zeros.dtype()), zeros.shape().str());
    const Tensor result = Tensor::zeros(zeros.shape(), zeros.dtype());
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = sequences[static_cast<size_t>(i)];
      tensor::copy_into(result.slice(0, at, at + 1), own_part.slice(0, i, i + 1));
    }
    job.asked.conditioning.tensors[name] = result;
  }
}

}  // namespace

void broadcast_conditioning(const runtime::ModelState& state, Job& job) {
  if (job.asked.texts.empty()) return;
  state.ranks().between_processes([&](comm::Communicator& ranks) {
    state.ranks().first() ? send(state, ranks, job) : receive(state, ranks, job);
  });
}

}  // namespace tessera::diffusion
