#pragma once

#include <span>
#include <string>
#include <vector>

#include "server/job.h"

namespace tessera::server {

/// Jobs of one key may run as one request and get, bit by bit, what they get alone; "": it runs
/// alone. Images: those with a seed for each and the same numbers; texts: greedy ones.
std::string batch_key(const Job& job);

/// Whether others of its key may join its run when that is at work.
bool may_join(const Job& job);

/// Images (videos, answers) that a request makes.
int samples_of(const Ask& ask);

/// One request of all, each sample with its seed.
GenerateRequest merged_images(std::span<const JobPtr> jobs);
/// The prompts of a job as ids, by the model's tokenizer.
std::vector<std::vector<int32_t>> prompt_ids(const Job& job, const std::stop_token& stop);
/// One request of all. Chats and prompts behind a template become ids.
CompleteRequest merged_texts(std::span<const JobPtr> jobs, const std::stop_token& stop);

}  // namespace tessera::server
