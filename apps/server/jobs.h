#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
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

/// All jobs: takes them in, runs them in fair order, keeps what came of them. May be used from all
/// threads. `client` names who asks; jobs of others are not there for him ("": all are).
class Jobs {
 public:
  /// Takes up what the store has left to do. `clients`: how many have a key; each sees its own jobs
  /// alone, and has its Shares. 0: without keys, all see all.
  Jobs(const Models& models, Store& store, Metrics& metrics, const ServeOptions& options,
       int clients);
  /// Stops what runs.
  ~Jobs();

  /// Throws Refusal: 400 for what is wrong, 429 when too many wait, 503 while it ends, 507 when the
  /// store takes no more, or the client's share of it is full. A job that was returned is in the
  /// store.
  JobPtr submit(const std::string& client, const std::string& model, const Json& request,
                int previews);
  /// All of a job. Throws Refusal(404).
  Json show(const std::string& client, const std::string& id) const;
  Json list(const std::string& client, int limit, const std::string& before) const;
  /// Its events; of one that ended long ago the last alone. Throws Refusal(404).
  JobPtr events_of(const std::string& client, const std::string& id) const;
  /// {path, media type} of a file. Throws Refusal(404).
  std::pair<std::string, std::string> file(const std::string& client, const std::string& id,
                                           size_t number) const;
  /// Cancels a job that waits or runs; what one has that ended stays. Throws Refusal(404).
  Json cancel(const std::string& client, const std::string& id);
  /// Cancels a job that waits or runs, and removes one that has ended. Throws Refusal(404).
  Json remove(const std::string& client, const std::string& id);
  /// Whether it had not ended. The client who waited for it is gone.
  bool cancel(const JobPtr& job);
  /// The record of a job that was submitted, as it is now.
  JobRecord record(const Job& job) const;

  /// What of `client` ("": of all) waits and runs, and what waits for models that are not served,
  /// by their names.
  Json status(const std::string& client) const;
  bool closing() const;
  /// Jobs of `client` ("": of all) that wait (in the queue, or for memory), and that run.
  std::pair<size_t, size_t> standing(const std::string& client) const;
  /// Writes what the store could not take before, ends jobs that have run for too long, and forgets
  /// those that ended long ago or are above the limit of the store; called now and then, as a store
  /// that is full may have room again.
  void tend();
  /// Throws what made the ranks useless, if something did: the server must end.
  void check_ranks() const;
  /// Takes no more jobs. What runs may end within `grace` seconds, and is queued again else.
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
  void lose_ranks(std::exception_ptr why);
  std::vector<JobPtr> next();
  void run(std::vector<JobPtr>& jobs);
  bool run_once(std::vector<JobPtr>& jobs);
  std::vector<Outcome> run_with_room(std::vector<JobPtr>& jobs, const std::stop_token& stop);
  bool wait_for_room(const Error& why, std::vector<JobPtr>& jobs, uint64_t rests,
                     const std::stop_token& stop);
  std::shared_ptr<const void> counting(int& count);
  std::shared_ptr<const void> standing_first(const Run& run);
  void conclude(Job& job, const Outcome& outcome);
  Look look_of(const std::vector<JobPtr>& jobs);
  std::vector<JobPtr> join(const std::shared_ptr<Run>& run, const std::string& key, int at_work);
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
  const bool own_;  // clients see their own jobs alone
  const Shares shares_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  FairQueue queue_;
  std::map<std::string, JobPtr> live_;  // waiting, running, and ended a short while ago
  std::deque<std::string> ended_;       // of live_, oldest first
  std::deque<JobRecord> unwritten_;     // ended, and not so in the store
  std::vector<std::shared_ptr<Run>> running_;
  int at_work_ = 0;                // runs, but for those that wait for memory
  int busy_ = 0;                   // workers that run something
  Recent recent_;                  // of clients that share the cores
  std::vector<const Run*> first_;  // that nobody may overtake: they wait for memory
  uint64_t rests_ = 0;             // times that at_work_ became less
  bool closing_ = false, requeue_ = false;
  std::exception_ptr lost_;  // the ranks
  double mean_seconds_ = 1;  // of a run
  std::vector<std::jthread> workers_;
};

}  // namespace tessera::server
