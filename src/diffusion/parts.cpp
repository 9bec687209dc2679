#include "diffusion/parts.h"

#include <algorithm>

#include "diffusion/conditioning.h"

namespace tessera::diffusion {

std::vector<nn::Range> parts_of(const Plan& plan, int samples) {
  if (!plan.vae_apart) return {{0, samples}};
  const int count = std::max(samples / (plan.data * plan.shard), 1);
  std::vector<nn::Range> parts;
  for (int64_t begin = 0; std::ssize(parts) < count;) {
    const int64_t size = samples / count + (std::ssize(parts) < samples % count ? 1 : 0);
    parts.push_back({begin, begin + size});
    begin += size;
  }
  return parts;
}

Job part_of(const Job& job, nn::Range samples) {
  if (samples.size() == job.samples()) return job;
  Job part = job;
  part.planned.labels = {job.planned.labels.begin() + samples.begin,
                         job.planned.labels.begin() + samples.end};
  part.planned.first_sample = static_cast<int>(samples.begin);
  part.planned.all_samples = job.samples();
  std::vector<int> sequences;
  for (int branch = 0; branch < (job.planned.guidance.branches() ? 2 : 1); ++branch)
    for (int64_t i = samples.begin; i < samples.end; ++i)
      sequences.push_back(static_cast<int>(branch * job.samples() + i));
  part.asked.conditioning = take_sequences(job.asked.conditioning, sequences);
  part.planned.prefixes.clear();
  for (const int s : sequences)
    if (!job.planned.prefixes.empty())
      part.planned.prefixes.push_back(job.planned.prefixes.at(static_cast<size_t>(s)));
  return part;
}

std::vector<int> sequences_of(const Plan& plan, const Job& job, int rank) {
  std::vector<int> sequences;
  if (rank >= plan.world()) return sequences;
  for (const nn::Range samples : parts_of(plan, job.samples())) {
    parallel::Workload workload = job.workload();
    workload.samples = static_cast<int>(samples.size());
    workload.first_sample = static_cast<int>(samples.begin);
    workload.all_samples = job.samples();
    for (const int sequence : parallel::Partition(plan, workload).sequences(rank))
      sequences.push_back(workload.number(sequence));
  }
  return sequences;
}

}  // namespace tessera::diffusion
