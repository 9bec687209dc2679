// The workers of Jobs: take jobs, run them and record their results.
#include <algorithm>

#include "server/batch.h"
#include "server/field_names.h"
#include "server/follow.h"
#include "server/jobs.h"
#include "server/refusal.h"
#include "server/work_beside.h"
#include "server/worker.h"

namespace tessera::server {
namespace {
constexpr size_t kMostInRun = 256;  // then a run ends, to release its memory

}  // namespace

// Sends an order to ranks that are processes.
void Jobs::tell_ranks(const std::string& text) {
  if (!options_.run.processes) return;
  {
    const std::lock_guard lock(mutex_);
    if (lost_) return;
  }
  try {
    options_.run.processes->share(text);
  } catch (const std::exception&) {
    const std::lock_guard lock(mutex_);
    lose_ranks(std::current_exception());
  }
}

// Maximum silence towards other ranks: they wait at most comm_timeout.
std::chrono::milliseconds Jobs::silence() const {
  return std::min(std::chrono::milliseconds(1000), options_.run.comm_timeout / 4);
}

// Keeps the other ranks alive while rank 0 works alone.
void Jobs::keep_ranks(const std::function<void()>& work) {
  if (!options_.run.processes) return work();
  work_beside(work, silence(), [this] { tell_ranks(kNothing); });
}

// Requires the lock.
void Jobs::lose_ranks(std::exception_ptr reason) {
  if (!lost_) lost_ = std::move(reason);
  closing_ = requeue_ = true;
}

void Jobs::check_ranks() const {
  const std::lock_guard lock(mutex_);
  if (lost_) std::rethrow_exception(lost_);
}

void Jobs::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto due = [this] {
      return closing_ || queue_.find([this](const Job& job) { return may_begin(job); });
    };
    if (!options_.run.processes) changed_.wait(lock, due);
    while (options_.run.processes && !lost_ && !changed_.wait_for(lock, silence(), due)) {
      lock.unlock();
      tell_ranks(kNothing);
      lock.lock();
    }
    if (closing_ || lost_) {
      lock.unlock();
      return tell_ranks(kEnd);
    }
    std::vector<JobPtr> jobs = next();
    ++busy_;
    lock.unlock();
    run(jobs);
    lock.lock();
    --busy_;
  }
}

// Takes the next job, and jobs that can run with it. Requires the lock.
std::vector<JobPtr> Jobs::next() {
  std::vector<JobPtr> jobs = queue_.pop_more(1, [this](const Job& job) { return may_begin(job); });
  const std::string key = batch_key(*jobs[0]);
  int room = options_.batch - samples_of(jobs[0]->ask);
  if (!key.empty() && room > 0)
    for (const JobPtr& more : queue_.pop_more(size_t(room), [&](const Job& job) {
           const int samples = samples_of(job.ask);
           if (samples > room || batch_key(job) != key) return false;
           room -= samples;
           return true;
         }))
      jobs.push_back(more);
  begin(jobs);
  metrics_.batch(jobs[0]->record.model, jobs.size());
  tell_positions();
  return jobs;
}

void Jobs::begin(const std::vector<JobPtr>& jobs) {
  const auto run = std::make_shared<Run>();
  for (const JobPtr& job : jobs) start(*job, run);
  running_.push_back(run);
}

void Jobs::start(Job& job, const std::shared_ptr<Run>& run) {
  run->jobs.push_back(&job);
  job.run = run;
  tell_running(job);
}

void Jobs::tell_running(Job& job) {
  job.record.state = JobState::running;
  job.record.started = now();
  job.waits_for = {};
  job.run->service.begin(steady_seconds());
  job.events.add("state", text_of({{"state", "running"}, {"position", nullptr}}));
}

// Takes jobs that can join a running request, only if it is their turn, so that others wait no
// longer.
std::vector<JobPtr> Jobs::join(const std::shared_ptr<Run>& run, const std::string& key,
                               int active) {
  std::vector<JobPtr> jobs;
  const std::lock_guard lock(mutex_);
  const bool open = !closing_ && !run->stop.stop_requested() && first_.empty();
  while (open && queue_.size() > 0 && active < options_.batch && run->jobs.size() < kMostInRun) {
    const JobPtr job = queue_.order().front();
    const int samples = samples_of(job->ask);
    if (active + samples > options_.batch || batch_key(*job) != key) break;
    active += samples;
    jobs.push_back(queue_.pop());
    start(*job, run);
  }
  if (jobs.empty()) return jobs;
  metrics_.joined(jobs[0]->record.model, jobs.size());
  tell_positions();
  return jobs;
}

RunCallbacks Jobs::callbacks_of(const std::vector<JobPtr>& jobs) {
  RunCallbacks callbacks;
  callbacks.after = [this](const std::function<void()>& work) { keep_ranks(work); };
  callbacks.step = [this, run = jobs[0]->run](Job& job, int step, int steps, double seconds) {
    {
      const std::lock_guard lock(mutex_);
      job.step = step;
      job.steps = steps;
      job.step_seconds = seconds;
      if (!ended(job.record.state)) job.events.add("progress", text_of(progress_of(job)));
    }
    stand_back(*run);
  };
  callbacks.prefix = conversations_ ? &*conversations_ : nullptr;
  if (!may_join(*jobs[0])) return callbacks;
  callbacks.join = [this, key = batch_key(*jobs[0]), run = jobs[0]->run](int active) {
    return join(run, key, active);
  };
  callbacks.ended = [this](const JobPtr& job, const Outcome& outcome) {
    const std::lock_guard lock(mutex_);
    if (!ended(job->record.state)) conclude(*job, outcome);
  };
  return callbacks;
}

// Runs jobs. If a merged run is refused, each job runs alone, so that one bad job fails alone.
void Jobs::run(std::vector<JobPtr>& jobs) {
  const std::shared_ptr<Run> run = jobs[0]->run;
  const bool ran = run_once(jobs);
  std::vector<JobPtr> single_jobs;
  {
    const std::lock_guard lock(mutex_);
    if (const double began = jobs[0]->record.started; began > 0)
      mean_seconds_ = 0.9 * mean_seconds_ + 0.1 * (now() - began) / double(jobs.size());
    for (const JobPtr& job : jobs) {
      job->run = nullptr;
      if (ran) continue;
      if (ended(job->record.state)) {
        if (job->record.state != JobState::done) store_.clear(job->record.id);
        continue;
      }
      job->alone = true;
      begin({job});
      single_jobs.push_back(job);
    }
    std::erase(running_, run);
    changed_.notify_all();
  }
  for (const JobPtr& job : single_jobs) {
    std::vector<JobPtr> single_job{job};
    this->run(single_job);
  }
}

// Increments a counter until the returned handle is released.
std::shared_ptr<const void> Jobs::counting(int& count) {
  {
    const std::lock_guard lock(mutex_);
    ++count;
  }
  return {this, [this, &count](const void*) {
            const std::lock_guard lock(mutex_);
            --count;
            if (&count == &active_) ++rests_;
            changed_.notify_all();
          }};
}

// Marks a run as waiting for memory until the returned handle is released.
std::shared_ptr<const void> Jobs::standing_first(const Run& run) {
  {
    const std::lock_guard lock(mutex_);
    first_.push_back(&run);
  }
  return {this, [this, &run](const void*) {
            const std::lock_guard lock(mutex_);
            std::erase(first_, &run);
            changed_.notify_all();
          }};
}

// Records the outcome of a job, also if the store may be full. Requires the lock.
void Jobs::conclude(Job& job, const Outcome& outcome) {
  const int64_t bytes = bytes_of(outcome.results);
  if (shares_.disk == 0 || bytes <= shares_.disk) {
    take(outcome, job, metrics_);
    return finish(job, JobState::done);
  }
  job.record.error = body_of({507, "storage",
                              "the results have " + std::to_string(bytes) +
                                  " bytes, and the server's --store-limit allows " +
                                  std::to_string(shares_.disk)})["error"];
  finish(job, JobState::failed);
  store_.clear(job.record.id);
}

// Waits until a running job stops, and drops cancelled jobs. Returns false if none was running
// since `rests`, or on a stop: waiting is then useless.
bool Jobs::wait_for_room(const Error& reason, std::vector<JobPtr>& jobs, uint64_t rests,
                         const std::stop_token& stop) {
  const Json error = body_of(refusal_of(models_.with_names(reason)))["error"];
  std::unique_lock lock(mutex_);
  if (rests_ == rests && active_ == 0) return false;
  for (const JobPtr& job : jobs) {
    if (ended(job->record.state)) continue;
    job->record.state = JobState::queued;
    job->record.started = 0;
    job->waits_for = {{"type", error["type"]}, {"message", error["message"]}};
    job->step = job->steps = 0;
    job->step_seconds = 0;
  }
  tell_positions();
  changed_.wait(lock, [&] { return rests_ != rests || stop.stop_requested(); });
  if (stop.stop_requested()) return false;
  const auto has_ended = [](const auto& job) { return ended(job->record.state); };
  std::erase_if(jobs[0]->run->jobs, has_ended);
  for (const JobPtr& job : jobs)
    if (has_ended(job)) job->run = nullptr;
  std::erase_if(jobs, has_ended);
  return true;
}

// Runs jobs; if memory is short beside other runs, waits before the queue and retries after each
// ended run. Other jobs may begin then.
std::vector<Outcome> Jobs::run_with_room(std::vector<JobPtr>& jobs, const std::stop_token& stop) {
  std::shared_ptr<const void> first;
  bool admitted = false;  // clients must hear of the start only once
  RunCallbacks callbacks = callbacks_of(jobs);
  callbacks.admitted = [&] {
    admitted = true;
    if (!first) return;
    {
      const std::lock_guard lock(mutex_);
      for (const JobPtr& job : jobs)
        if (!ended(job->record.state)) tell_running(*job);
      tell_positions();
    }
    first.reset();
  };
  while (true) {
    uint64_t rests = 0;
    const size_t job_count = jobs.size();
    try {
      const auto active = counting(active_);
      {
        const std::lock_guard lock(mutex_);
        rests = rests_ + 1;  // counts this run's own end
      }
      return run_jobs(jobs, store_, callbacks, stop, options_.run.processes != nullptr);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::memory || jobs.size() != job_count || admitted) throw;
      if (!first) first = standing_first(*jobs[0]->run);
      if (!wait_for_room(e, jobs, rests, stop)) throw;
    }
  }
}

// Returns false if a merged run failed and each job must run alone.
bool Jobs::run_once(std::vector<JobPtr>& jobs) {
  Json error;
  std::vector<Outcome> outcomes;
  const std::stop_token stop = jobs[0]->run->stop.get_token();
  if (options_.run.processes) tell_ranks(order_of(jobs));
  try {
    outcomes = run_with_room(jobs, stop);
  } catch (const Error& e) {
    if (options_.run.processes && e.code() == ErrorCode::rank) {
      const std::lock_guard lock(mutex_);
      lose_ranks(std::current_exception());
      requeue(jobs);
      return true;
    }
    error = body_of(refusal_of(models_.with_names(e)))["error"];
  } catch (const Refusal& refusal) {
    error = body_of(refusal)["error"];
  } catch (const std::exception& e) {  // out of memory or threads: the server continues
    error = body_of(Refusal(500, "server_error", e.what()))["error"];
  }
  if (!error.is_null() && jobs.size() > 1 && !stop.stop_requested()) return false;
  const std::lock_guard lock(mutex_);
  if (!error.is_null() && requeue_ && stop.stop_requested()) {
    requeue(jobs);
    return true;
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    Job& job = *jobs[i];
    if (ended(job.record.state)) {
      if (job.record.state != JobState::done) store_.clear(job.record.id);
      continue;
    }
    job.record.error = error;
    if (error.is_null())
      conclude(job, outcomes[i]);
    else
      finish(job, JobState::failed);
  }
  return true;
}

// The next server runs these jobs again.
void Jobs::requeue(const std::vector<JobPtr>& jobs) {
  for (const JobPtr& job : jobs) {
    if (ended(job->record.state)) continue;
    job->record.state = JobState::queued;
    job->record.started = 0;
    store_.clear(job->record.id);
  }
}

}  // namespace tessera::server
