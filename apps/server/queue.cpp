#include "server/queue.h"

#include <algorithm>

namespace tessera::server {

void FairQueue::push(const JobPtr& job) {
  lines_[job->record.client].jobs.push_back(job);
  ++size_;
}

JobPtr FairQueue::pop() {
  const auto jobs = pop_more(1, [](const Job&) { return true; });
  return jobs.empty() ? nullptr : jobs[0];
}

std::vector<JobPtr> FairQueue::pop_more(size_t most, const std::function<bool(const Job&)>& fits) {
  std::vector<JobPtr> jobs;
  std::vector<JobPtr> waiting = order();
  for (const JobPtr& job : waiting) {
    if (jobs.size() == most) break;
    if (!fits(*job)) continue;
    lines_[job->record.client].served = ++turn_;
    remove(*job);
    jobs.push_back(job);
  }
  return jobs;
}

JobPtr FairQueue::find(const std::function<bool(const Job&)>& fits) const {
  const std::vector<JobPtr> waiting = order();
  const auto it = std::ranges::find_if(waiting, [&](const JobPtr& job) { return fits(*job); });
  return it == waiting.end() ? nullptr : *it;
}

size_t FairQueue::count(const std::string& client) const {
  const auto line = lines_.find(client);
  return line == lines_.end() ? 0 : line->second.jobs.size();
}

bool FairQueue::remove(const Job& job) {
  const auto line = lines_.find(job.record.client);
  if (line == lines_.end()) return false;
  auto& jobs = line->second.jobs;
  const auto at = std::find_if(jobs.begin(), jobs.end(),
                               [&](const JobPtr& candidate) { return candidate.get() == &job; });
  if (at == jobs.end()) return false;
  jobs.erase(at);
  --size_;
  // Clients without waiting jobs are forgotten after the map has grown.
  if (lines_.size() > 1024)
    std::erase_if(lines_, [](const auto& entry) { return entry.second.jobs.empty(); });
  return true;
}

std::vector<JobPtr> FairQueue::order() const {
  std::vector<const Line*> lines;
  for (const auto& [client, line] : lines_)
    if (!line.jobs.empty()) lines.push_back(&line);
  std::stable_sort(lines.begin(), lines.end(),
                   [](const Line* a, const Line* b) { return a->served < b->served; });
  std::vector<JobPtr> jobs;
  for (size_t i = 0; jobs.size() < size_; ++i)
    for (const Line* line : lines)
      if (i < line->jobs.size()) jobs.push_back(line->jobs[i]);
  return jobs;
}

}  // namespace tessera::server
