// Whose turn it is: which job waits, begins, or goes on.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>

#include "server/jobs.h"
#include "server/refusal.h"

namespace tessera::server {
namespace {

constexpr size_t kImages = size_t{256} << 20;  // bytes of images of jobs that did not end

// Jobs that have left a run with their answer count no more; one that was cancelled does while the
// run goes on to the end of its step.
bool is_at_work(const Job& job) { return job.record.state != JobState::done; }

std::set<std::string> clients_of(const Run& run) {
  std::set<std::string> names;
  for (const Job* job : run.jobs)
    if (is_at_work(*job)) names.insert(job->record.client);
  return names;
}

}  // namespace

// Under the lock: all that wait, in the order of their turns. Whose turn it was and for whom there
// is no memory yet stands before the queue.
std::vector<Job*> Jobs::line() const {
  std::vector<Job*> all;
  for (const auto& run : running_)
    std::ranges::copy_if(run->jobs, std::back_inserter(all),
                         [](const Job* job) { return job->record.state == JobState::queued; });
  for (const JobPtr& job : queue_.order()) all.push_back(job.get());
  return all;
}

// Under the lock: how many these are, of `client` ("": of all).
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
  const size_t own = waiting(client), all = waiting("");
  if (shares_.may_wait(own, all)) return;
  const double seconds = mean_seconds_ * double(all) / double(shares_.at_once);
  throw Refusal(429, "overloaded",
                std::to_string(shares_.shared() ? own : all) +
                    (shares_.shared() ? " of your" : "") +
                    " jobs wait, and more may not; try again later",
                "", static_cast<int>(std::clamp(std::ceil(seconds), 1.0, 600.0)));
}

// Under the lock: how many runs a client has, and how many others have without it.
std::pair<int, int> Jobs::runs_beside(const std::string& client) const {
  int own = 0, others = 0;
  for (const auto& run : running_) {
    const std::set<std::string> clients = clients_of(*run);
    if (!clients.empty()) ++(clients.contains(client) ? own : others);
  }
  return {own, others};
}

// Under the lock: whether a client may begin something though `first` waits for memory: while it
// waits for a run of its own client.
bool Jobs::may_overtake(const Run& first, const std::string& client) const {
  const std::set<std::string> waiting = clients_of(first);
  if (!shares_.shared() || waiting.contains(client)) return false;
  return std::ranges::any_of(running_, [&](const auto& run) {
    if (std::ranges::find(first_, run.get()) != first_.end()) return false;
    const std::set<std::string> others = clients_of(*run);
    return std::ranges::any_of(waiting, [&](const auto& name) { return others.contains(name); });
  });
}

// Under the lock.
bool Jobs::may_begin(const Job& job) const {
  const std::string& client = job.record.client;
  const auto [own, others] = runs_beside(client);
  return shares_.may_run(own, others, busy_) &&
         std::ranges::all_of(first_, [&](const Run* run) { return may_overtake(*run, client); });
}

// Between steps, for runs that had less of the cores than this one.
void Jobs::stand_back(Run& run) {
  std::unique_lock lock(mutex_);
  const double begin = steady_seconds();
  const std::chrono::duration<double> behind_step(run.service.step(begin));
  const std::chrono::duration<double> silence = options_.run.comm_timeout / 4;  // of its ranks
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

// Under the lock: whether each of its clients has an earlier run, and somebody else has one, too.
// So two clients share the cores evenly, however many runs each of them has.
bool Jobs::is_beside_others(const Run& run) const {
  if (!shares_.shared()) return false;
  std::set<std::string> own = clients_of(run);
  const std::set<std::string> all = own;
  bool earlier = true, others = false;
  for (const auto& other : running_) {
    if (other.get() == &run) earlier = false;
    if (other.get() == &run || !other->service.computes()) continue;
    for (const std::string& name : clients_of(*other)) {
      if (earlier) own.erase(name);
      others = others || !all.contains(name);
    }
  }
  return others && own.empty() && !all.empty();
}

// Under the lock: whether each of its clients had more than twice as much of the cores of late as
// somebody else whose run computes.
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

// Under the lock: where the first of them stand.
void Jobs::tell_positions() {
  const std::vector<Job*> order = line();
  for (size_t i = 0; i < std::min<size_t>(order.size(), 16); ++i)
    order[i]->events.add("state", text_of(queued_at(*order[i], i)));
}

}  // namespace tessera::server
