// Periodic upkeep of Jobs: writes, ends and deletes jobs.
#include <limits>
#include <numeric>

#include "server/jobs.h"
#include "server/refusal.h"

namespace tessera::server {
namespace {

constexpr int kAtOnce = 100;  // jobs deleted in each pass

int64_t sum_of(const std::map<std::string, int64_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0},
                         [](int64_t sum, const auto& entry) { return sum + entry.second; });
}

}  // namespace

void Jobs::tend() {
  try {
    end_overdue();
    write_down();
    for (const std::string& id : store_.ended_before(now() - options_.keep, kAtOnce)) forget(id);
    make_room();
    store_.tidy();
  } catch (const Refusal& refusal) {  // the store is full now and may recover
    if (refusal.status() != 507) throw;
  }
}

void Jobs::write_down() {
  const std::lock_guard lock(mutex_);
  for (; !unwritten_.empty(); unwritten_.pop_front()) store_.put(unwritten_.front());
}

void Jobs::end_overdue() {
  if (options_.job_time <= 0) return;
  const std::lock_guard lock(mutex_);
  const double latest = now() - options_.job_time;
  const Refusal refusal(
      400, "time_limit",
      "the job has run for as long as the server's --job-time allows; ask for fewer "
      "steps, or less at once");
  std::vector<Job*> overdue;
  for (const auto& run : running_)
    for (Job* job : run->jobs)
      if (job->record.state == JobState::running && job->record.started < latest)
        overdue.push_back(job);
  for (Job* job : overdue) stop(*job, JobState::failed, body_of(refusal)["error"]);
}

void Jobs::forget(const std::string& id) {
  store_.remove(id);
  const std::lock_guard lock(mutex_);
  live_.erase(id);
  std::erase(ended_, id);
  std::erase_if(unwritten_, [&](const JobRecord& record) { return record.id == id; });
}

// If the store exceeds its limit, the largest client above the guaranteed share loses the oldest
// job of that client.
void Jobs::make_room() {
  for (int i = 0; shares_.disk > 0 && i < kAtOnce; ++i) {
    std::map<std::string, int64_t> bytes = store_.bytes();
    if (sum_of(bytes) <= shares_.disk) return;
    std::vector<std::string> oldest;
    if (!shares_.shared()) oldest = store_.ended_before(std::numeric_limits<double>::max(), 1);
    while (shares_.shared() && oldest.empty() && !bytes.empty()) {
      const auto most = std::ranges::max_element(
          bytes, [](const auto& a, const auto& b) { return a.second < b.second; });
      if (most->second <= shares_.own_disk()) return;
      oldest = store_.ended_before(std::numeric_limits<double>::max(), 1, most->first);
      bytes.erase(most);
    }
    if (oldest.empty()) return;
    forget(oldest[0]);
  }
}

// Waiting and running jobs are never removed: if they fill the store, nothing more is accepted.
void Jobs::check_disk(const std::string& client) {
  if (shares_.disk == 0) return;
  make_room();
  const auto bytes = store_.bytes();
  const auto own = bytes.find(client);
  if (sum_of(bytes) < shares_.disk) return;
  if (own == bytes.end() || (shares_.shared() && own->second < shares_.own_disk())) return;
  throw Refusal(507, "storage",
                "your jobs fill your share of the server's store; wait for some, or remove some",
                "", 30);
}

}  // namespace tessera::server
