#include "server/batch.h"

#include "tessera/words.h"

namespace tessera::server {
namespace {

void append_seeds(const GenerateRequest& from, std::vector<uint64_t>& seeds) {
  if (from.seeds.empty())
    seeds.push_back(from.seed);
  else
    seeds.insert(seeds.end(), from.seeds.begin(), from.seeds.end());
}

}  // namespace

int samples_of(const Ask& ask) {
  if (const auto* q = std::get_if<GenerateRequest>(&ask))
    return static_cast<int>(q->prompts.size() + q->classes.size()) * q->count;
  const auto& q = std::get<CompleteRequest>(ask);
  return static_cast<int>(q.prompts.size() + q.prompt_ids.size() + (q.chat.empty() ? 0 : 1)) * q.n;
}

std::string batch_key(const Job& job) {
  if (job.alone) return "";
  Json key = job.record.request;
  if (const auto* q = std::get_if<GenerateRequest>(&job.ask)) {
    if (q->cache) return "";  // the samples of a batch share the cache's decisions
    for (const char* own : {"prompt", "prompts", "classes", "seed", "seeds"}) key.erase(own);
    key["count"] = q->count;
    key["by_class"] = q->prompts.empty();
  } else {
    const auto& text = std::get<CompleteRequest>(job.ask);
    // Decisions over the whole batch would depend on the other jobs.
    if (text.temperature > 0 || text.n > 1 || text.select.find("scope=batch") != std::string::npos)
      return "";
    for (const char* own : {"prompt", "prompts", "messages", "tools", "enable_thinking", "raw"})
      key.erase(own);
    key.erase("seed");
    if (job.served->facts.draws) key["seed"] = text.seed;
  }
  return job.record.model + "\n" + std::to_string(job.record.previews) + "\n" +
         nlohmann::json(key).dump();  // names in sorted order
}

bool may_join(const Job& job) {
  return job.record.kind == Kind::text && job.served->facts.joins && !batch_key(job).empty();
}

GenerateRequest merged_images(std::span<const JobPtr> jobs) {
  GenerateRequest request = std::get<GenerateRequest>(jobs[0]->ask);
  if (jobs.size() == 1) return request;
  request.prompts.clear();
  request.classes.clear();
  request.seeds.clear();
  for (const JobPtr& job : jobs) {
    const auto& q = std::get<GenerateRequest>(job->ask);
    request.prompts.insert(request.prompts.end(), q.prompts.begin(), q.prompts.end());
    request.classes.insert(request.classes.end(), q.classes.begin(), q.classes.end());
    append_seeds(q, request.seeds);
  }
  return request;
}

std::vector<std::vector<int32_t>> prompt_ids(const Job& job, const std::stop_token& stop) {
  const auto& q = std::get<CompleteRequest>(job.ask);
  std::vector<std::vector<int32_t>> all_ids;
  for (Tokenized& tokenized : job.served->model.tokenize(
           {.prompts = q.prompts, .chat = q.chat, .raw = q.raw, .tokenizer = ""}, stop))
    all_ids.push_back(std::move(tokenized.ids));
  return all_ids;
}

CompleteRequest merged_texts(std::span<const JobPtr> jobs, const std::stop_token& stop) {
  CompleteRequest request = std::get<CompleteRequest>(jobs[0]->ask);
  if (jobs.size() == 1) return request;
  request.prompts.clear();
  request.prompt_ids.clear();
  request.chat.clear();
  for (const JobPtr& job : jobs)
    for (auto& ids : prompt_ids(*job, stop)) request.prompt_ids.push_back(std::move(ids));
  return request;
}

}  // namespace tessera::server
