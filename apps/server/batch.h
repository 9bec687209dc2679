#pragma once

#include <span>
#include <string>
#include <vector>

#include "server/job.h"

namespace tessera::server {

/// Jobs with equal keys may run as one request and get bit-identical results to running alone; "":
/// the job runs alone. Images need a seed each and equal settings; texts must be greedy.
std::string batch_key(const Job& job);

/// True if other jobs of this key may join the run while it computes.
bool may_join(const Job& job);

/// Number of images (videos, answers) of a request.
int samples_of(const Ask& ask);

/// Merges jobs into a request; each sample keeps its seed.
GenerateRequest merged_images(std::span<const JobPtr> jobs);
/// Token ids of a job's prompts, from the model's tokenizer.
std::vector<std::vector<int32_t>> prompt_ids(const Job& job, const std::stop_token& stop);
/// Merges jobs into a request. Chats and templated prompts become ids.
CompleteRequest merged_texts(std::span<const JobPtr> jobs, const std::stop_token& stop);

}  // namespace tessera::server
