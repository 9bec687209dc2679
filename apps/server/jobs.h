#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/job.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/queue.h"
#include "server/shares.h"
#include "server/store.h"
#include "server/worker.h"

namespace tessera::server {

/// All jobs: accepts them, runs them in fair order and keeps their results. Thread-safe. `client`
/// names the caller; a client cannot see jobs of others ("": sees all).
class Jobs {
 public:
  /// Resumes unfinished jobs of the store. `clients`: number of clients with keys; each sees only
  /// its own jobs and has its Shares. 0: no keys, everybody sees all jobs.
  Jobs(const Models& models, Store& store, Metrics& metrics, const ServeOptions& options,
       int clients);
  /// Stops running jobs.
  ~Jobs();

  /// Accepts a job and stores it before returning. Throws Refusal: 400 for an invalid request, 429
  /// if too many jobs wait, 503 during shutdown, 507 if the store or the client's share of the
  /// store is full.
  JobPtr submit(const std::string& client, const std::string& model, const Json& request,
                int previews);
  /// Full JSON of a job. Throws Refusal(404).
  Json show(const std::string& client, const std::string& id) const;
  Json list(const std::string& client, int limit, const std::string& before) const;
  /// Job with the event log; a job whose end is long ago has only the final event. Throws
  /// Refusal(404).
  JobPtr events_of(const std::string& client, const std::string& id) const;
  /// {path, media type} of a file. Throws Refusal(404).
  std::pair<std::string, std::string> file(const std::string& client, const std::string& id,
                                           size_t number) const;
  /// Cancels a waiting or running job; results of an ended job stay. Throws Refusal(404).
  Json cancel(const std::string& client, const std::string& id);
  /// Cancels a waiting or running job; removes an ended job. Throws Refusal(404).
  Json remove(const std::string& client, const std::string& id);
  /// Cancels a job whose client left. Returns false if the job had ended.
  bool cancel(const JobPtr& job);
  /// Current record of a submitted job.
  JobRecord record(const Job& job) const;

  /// Waiting and running jobs of `client` ("": of all), and jobs whose model is not served, by
  /// model name.
  Json status(const std::string& client) const;
  bool closing() const;
  /// Numbers of waiting jobs (in the queue or for memory) and of running jobs of `client` ("": of
  /// all).
  std::pair<size_t, size_t> standing(const std::string& client) const;
  /// Periodic upkeep: retries failed writes to the store, ends jobs over their time limit, and
  /// deletes jobs older than the limit or above the size of the store.
  void tend();
  /// Throws the error that broke the ranks, if any; the server must then end.
  void check_ranks() const;
  /// Accepts no more jobs. Running jobs may end within `grace` seconds; the others are queued
  /// again.
  void close(double grace);

 private:
  JobRecord known(const std::string& client, const std::string& id) const;
  JobPtr find_live(const std::string& id) const;
  void restore();
  void set_aside(const JobPtr& job);
  void work();
  void tell_ranks(const std::string& text);
  void keep_ranks(const std::function<void()>& work);
  std::chrono::milliseconds silence() const;
  void lose_ranks(std::exception_ptr reason);
  std::vector<JobPtr> next();
  void run(std::vector<JobPtr>& jobs);
  bool run_once(std::vector<JobPtr>& jobs);
  std::vector<Outcome> run_with_room(std::vector<JobPtr>& jobs, const std::stop_token& stop);
  bool wait_for_room(const Error& reason, std::vector<JobPtr>& jobs, uint64_t rests,
                     const std::stop_token& stop);
  std::shared_ptr<const void> counting(int& count);
  std::shared_ptr<const void> standing_first(const Run& run);
  void conclude(Job& job, const Outcome& outcome);
  RunCallbacks callbacks_of(const std::vector<JobPtr>& jobs);
  std::vector<JobPtr> join(const std::shared_ptr<Run>& run, const std::string& key, int active);
  void start(Job& job, const std::shared_ptr<Run>& run);
  void tell_running(Job& job);
  void stand_back(Run& run);
  std::vector<Job*> line() const;
  size_t waiting(const std::string& client) const;
  bool may_begin(const Job& job) const;
  bool may_overtake(const Run& first, const std::string& client) const;
  std::pair<int, int> runs_beside(const std::string& client) const;
  bool is_beside_others(const Run& run) const;
  bool had_more(const Run& run, double now) const;
  void write_down();
  void end_overdue();
  void make_room();
  void forget(const std::string& id);
  void stop(Job& job, JobState state, const Json& error);
  void finish(Job& job, JobState state);
  void begin(const std::vector<JobPtr>& jobs);
  void requeue(const std::vector<JobPtr>& jobs);
  void tell_positions();
  void check_room(const std::string& client, size_t images) const;
  size_t image_bytes(const std::string& client, bool of_ended) const;
  void put_ended(Job& job);
  void check_disk(const std::string& client);

  const Models& models_;
  Store& store_;
  Metrics& metrics_;
  const ServeOptions options_;
  const bool own_;  // clients see only their own jobs
  const Shares shares_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  FairQueue queue_;
  std::map<std::string, JobPtr> live_;  // waiting, running and recently ended jobs
  std::deque<std::string> ended_;       // oldest first, in live_
  std::deque<JobRecord> unwritten_;     // ended jobs not yet written to the store
  std::vector<std::shared_ptr<Run>> running_;
  int active_ = 0;                 // runs, except those waiting for memory
  int busy_ = 0;                   // workers with a run
  Recent recent_;                  // recent compute of each client
  std::vector<const Run*> first_;  // runs waiting for memory; new runs must not overtake them
  uint64_t rests_ = 0;             // number of times active_ decreased
  bool closing_ = false, requeue_ = false;
  std::exception_ptr lost_;                   // error of the ranks
  double mean_seconds_ = 1;                   // mean duration of a run
  std::optional<PrefixCache> conversations_;  // each client reuses its own
  std::vector<std::jthread> workers_;
};

}  // namespace tessera::server
