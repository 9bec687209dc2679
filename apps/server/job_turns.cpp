// Scheduling of jobs: the order of waiting, beginning and resuming jobs.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>

#include "server/jobs.h"
#include "server/refusal.h"

namespace tessera::server {
namespace {

constexpr size_t kImages = size_t{256} << 20;  // image bytes of jobs that have not ended

// Jobs that left a run with their answer do not count. A cancelled job counts until the current
// step of the run ends.
bool is_at_work(const Job& job) { return job.record.state != JobState::done; }

std::set<std::string> clients_of(const Run& run) {
  std::set<std::string> names;
  for (const Job* job : run.jobs)
    if (is_at_work(*job)) names.insert(job->record.client);
  return names;
}

}  // namespace

// All waiting jobs in scheduling order. Jobs that wait for memory precede the queue. Requires the
// lock.
std::vector<Job*> Jobs::line() const {
  std::vector<Job*> jobs;
  for (const auto& run : running_)
    std::ranges::copy_if(run->jobs, std::back_inserter(jobs),
                         [](const Job* job) { return job->record.state == JobState::queued; });
  for (const JobPtr& job : queue_.order()) jobs.push_back(job.get());
  return jobs;
}

// Number of waiting jobs of `client` ("": of all). Requires the lock.
size_t Jobs::waiting(const std::string& client) const {
  size_t count = client.empty() ? queue_.size() : queue_.count(client);
  for (const auto& run : running_)
    count += size_t(std::ranges::count_if(run->jobs, [&](const Job* job) {
      return job->record.state == JobState::queued &&
             (client.empty() || job->record.client == client);
    }));
  return count;
}

void Jobs::check_room(const std::string& client, size_t images) const {
  if (closing_)
    throw Refusal(503, "overloaded", "the server is about to end; ask again in a moment", "", 5);
  if (images > 0 && (image_bytes("", false) + images > kImages ||
                     (shares_.shared() && image_bytes(client, false) + images > kImages / 2)))
    throw Refusal(429, "overloaded", "images of waiting jobs take all room for them; try later", "",
                  5);
  const size_t own = waiting(client), waiting_count = waiting("");
  if (shares_.may_wait(own, waiting_count)) return;
  const double seconds = mean_seconds_ * double(waiting_count) / double(shares_.at_once);
  throw Refusal(429, "overloaded",
                std::to_string(shares_.shared() ? own : waiting_count) +
                    (shares_.shared() ? " of your" : "") +
                    " jobs wait, and more may not; try again later",
                "", static_cast<int>(std::clamp(std::ceil(seconds), 1.0, 600.0)));
}

// Runs of a client, and runs of the other clients. Requires the lock.
std::pair<int, int> Jobs::runs_beside(const std::string& client) const {
  int own = 0, others = 0;
  for (const auto& run : running_) {
    const std::set<std::string> clients = clients_of(*run);
    if (!clients.empty()) ++(clients.contains(client) ? own : others);
  }
  return {own, others};
}

// True if a client may begin a job although `first` waits for memory: the wait must be for a run of
// the same client as `first`. Requires the lock.
bool Jobs::may_overtake(const Run& first, const std::string& client) const {
  const std::set<std::string> waiting = clients_of(first);
  if (!shares_.shared() || waiting.contains(client)) return false;
  return std::ranges::any_of(running_, [&](const auto& run) {
    if (std::ranges::find(first_, run.get()) != first_.end()) return false;
    const std::set<std::string> others = clients_of(*run);
    return std::ranges::any_of(waiting, [&](const auto& name) { return others.contains(name); });
  });
}

// Requires the lock.
bool Jobs::may_begin(const Job& job) const {
  const std::string& client = job.record.client;
  const auto [own, others] = runs_beside(client);
  return shares_.may_run(own, others, busy_) &&
         std::ranges::all_of(first_, [&](const Run* run) { return may_overtake(*run, client); });
}

// Pauses a run between steps in favour of runs that had less compute.
void Jobs::stand_back(Run& run) {
  std::unique_lock lock(mutex_);
  const double begin = steady_seconds();
  const std::chrono::duration<double> behind_step(run.service.step(begin));
  const std::chrono::duration<double> silence = options_.run.comm_timeout / 4;  // ranks wait less
  const std::set<std::string> clients = clients_of(run);
  for (const std::string& client : shares_.shared() ? clients : std::set<std::string>())
    recent_.add(client, behind_step.count() / 2 / double(clients.size()), begin);
  const auto may_go_on = [&] {
    return closing_ || run.stop.stop_requested() ||
           (!is_beside_others(run) && !had_more(run, begin) &&
            std::ranges::none_of(running_, [&](const auto& other) {
              return other->service.comes_before(run.service, begin);
            }));
  };
  if (may_go_on()) return;
  const auto limit = is_beside_others(run) ? silence : std::min(behind_step, silence);
  changed_.wait_for(lock, limit, may_go_on);
  const double end = steady_seconds();
  run.service.go_on(end);
  metrics_.stood_back(end - begin);
}

// True if each client of the run has an earlier run and another client has a run too. Two clients
// then share the cores evenly, regardless of their numbers of runs. Requires the lock.
bool Jobs::is_beside_others(const Run& run) const {
  if (!shares_.shared()) return false;
  std::set<std::string> own = clients_of(run);
  const std::set<std::string> clients = own;
  bool earlier = true, others = false;
  for (const auto& other : running_) {
    if (other.get() == &run) earlier = false;
    if (other.get() == &run || !other->service.computes()) continue;
    for (const std::string& name : clients_of(*other)) {
      if (earlier) own.erase(name);
      others = others || !clients.contains(name);
    }
  }
  return others && own.empty() && !clients.empty();
}

// True if each client of the run recently had more than twice the compute of another client with a
// computing run. Requires the lock.
bool Jobs::had_more(const Run& run, double now) const {
  if (!shares_.shared()) return false;
  const std::set<std::string> own = clients_of(run);
  double least = std::numeric_limits<double>::max();
  for (const std::string& name : own) least = std::min(least, recent_.of(name, now));
  for (const auto& other : running_)
    if (other->service.computes())
      for (const std::string& name : clients_of(*other))
        if (!own.contains(name) && 2 * recent_.of(name, now) < least) return true;
  return false;
}

// Publishes the positions of the first waiting jobs. Requires the lock.
void Jobs::tell_positions() {
  const std::vector<Job*> order = line();
  for (size_t i = 0; i < std::min<size_t>(order.size(), 16); ++i)
    order[i]->events.add("state", text_of(queued_at(*order[i], i)));
}

}  // namespace tessera::server
