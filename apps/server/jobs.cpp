#include "server/jobs.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>

#include "server/batch.h"
#include "server/refusal.h"

namespace tessera::server {
namespace {
constexpr size_t kRecent = 64;  // ended jobs whose events are kept

int place_in(const std::vector<Job*>& line, const Job& job) {
  const auto at = std::ranges::find(line, &job);
  return at == line.end() ? -1 : static_cast<int>(at - line.begin());
}
}  // namespace

Jobs::Jobs(const Models& models, Store& store, Metrics& metrics, const ServeOptions& options,
           bool own)
    : models_(models), store_(store), metrics_(metrics), options_(options), own_(own) {
  restore();
  try {
    const int workers = options_.run.processes ? 1 : options_.at_once;
    for (int i = 0; i < workers; ++i) workers_.emplace_back([this] { work(); });
  } catch (...) {  // those that began wait for the end
    close(0);
    throw;
  }
}

Jobs::~Jobs() {
  close(0);
  workers_.clear();
}

// What an earlier server acknowledged and did not end.
void Jobs::restore() {
  for (JobRecord& record : store_.unfinished()) {
    auto job = std::make_shared<Job>();
    store_.clear(record.id);
    record.state = JobState::queued;
    record.started = 0;
    record.results = Json::array();
    job->record = std::move(record);
    job->served = models_.look_up(job->record.model);
    if (!job->served) {
      set_aside(job);
      continue;
    }
    try {
      read_ask(*job, options_.limits);
      live_[job->record.id] = job;
      queue_.push(job);
      job->events.add("state", text_of(queued_at(*job, queue_.size() - 1)));
    } catch (const Refusal& refusal) {  // its limits, or its model, were others
      job->record.error = body_of(refusal)["error"];
      finish(*job, JobState::failed);
    }
  }
}

// It waits, outside the queue, for a server that has its model; the store knows it as it was.
void Jobs::set_aside(const JobPtr& job) {
  JobRecord& r = job->record;
  r.error = body_of({503, "model_absent",
                     "model '" + r.model +
                         "' is not served now: the job waits for a server that is started with it, "
                         "too; or remove the job"})["error"];
  job->events.add("state", text_of({{"state", "queued"}, {"error", r.error}}));
  live_[r.id] = job;
}

void Jobs::check_room() const {
  if (closing_)
    throw Refusal(503, "overloaded", "the server is about to end; ask again in a moment", "", 5);
  const size_t wait = waiting();
  if (wait < static_cast<size_t>(options_.queue)) return;
  const double seconds = mean_seconds_ * double(wait) / double(workers_.size());
  throw Refusal(429, "overloaded",
                std::to_string(wait) + " jobs wait, and more may not; try again later", "",
                static_cast<int>(std::clamp(std::ceil(seconds), 1.0, 600.0)));
}

JobPtr Jobs::submit(const std::string& client, const std::string& model, const Json& request,
                    int previews) {
  auto job = std::make_shared<Job>();
  job->served = &models_.find(model);
  JobRecord& r = job->record;
  r.id = random_id();
  r.client = client;
  r.model = job->served->facts.name;
  r.kind = job->served->facts.kind;
  r.created = now();
  r.request = request;
  r.previews = previews;
  read_ask(*job, options_.limits);
  std::visit([&](const auto& ask) { job->served->model.check(ask); }, job->ask);
  {
    const std::lock_guard lock(mutex_);
    check_room();
    store_.put(r);
    live_[r.id] = job;
    job->events.add("state", text_of(queued_at(*job, waiting())));
    queue_.push(job);
  }
  changed_.notify_all();  // not only who waits for a job waits for this
  return job;
}

JobPtr Jobs::find_live(const std::string& id) const {
  const auto found = live_.find(id);
  return found == live_.end() ? nullptr : found->second;
}

JobRecord Jobs::known(const std::string& client, const std::string& id) const {
  std::optional<JobRecord> record;
  {
    const std::lock_guard lock(mutex_);
    const auto same = [&](const JobRecord& one) { return one.id == id; };
    const auto unwritten = std::ranges::find_if(unwritten_, same);
    if (const JobPtr job = find_live(id))
      record = job->record;
    else if (unwritten != unwritten_.end())
      record = *unwritten;
  }
  if (!record && id.size() == 24) record = store_.find(id);
  if (!record || (own_ && record->client != client))
    throw not_found("there is no job '" + id.substr(0, 64) + "'");
  return *record;
}

Json Jobs::show(const std::string& client, const std::string& id) const {
  const JobRecord record = known(client, id);
  const std::lock_guard lock(mutex_);
  const JobPtr job = find_live(id);
  if (!job || ended(record.state)) return json_of(record);
  return json_of(*job, place_in(line(), *job));
}

Json Jobs::list(const std::string& client, int limit, const std::string& before) const {
  const std::vector<JobRecord> records = store_.list(own_ ? client : "", limit, before);
  Json all = Json::array();
  const std::lock_guard lock(mutex_);
  const std::vector<Job*> order = line();
  for (const JobRecord& stored : records) {
    const JobPtr job = find_live(stored.id);
    const JobRecord& record = job ? job->record : stored;
    const bool over = !job || ended(record.state);
    Json one = over ? json_of(record) : json_of(*job, place_in(order, *job));
    one.erase("report");
    all.push_back(std::move(one));
  }
  return {{"jobs", all}};
}

JobPtr Jobs::events_of(const std::string& client, const std::string& id) const {
  const JobRecord record = known(client, id);
  {
    const std::lock_guard lock(mutex_);
    if (JobPtr job = find_live(id)) return job;
  }
  auto job = std::make_shared<Job>();
  job->record = record;
  const auto [name, data] = last_event_of(record);
  job->events.restore(std::max<uint64_t>(record.last_event, 1), name, text_of(data));
  return job;
}

std::pair<std::string, std::string> Jobs::file(const std::string& client, const std::string& id,
                                               size_t number) const {
  const JobRecord record = known(client, id);
  if (number >= record.results.size())
    throw not_found("job '" + id + "' has " + std::to_string(record.results.size()) + " results");
  const Json& one = record.results[number];
  return {store_.folder() + "/results/" + id + "/" + one["file"].get<std::string>(), one["type"]};
}

Json Jobs::cancel(const std::string& client, const std::string& id) {
  known(client, id);
  JobPtr job;
  {
    const std::lock_guard lock(mutex_);
    job = find_live(id);
  }
  if (job) cancel(job);
  return show(client, id);
}

Json Jobs::remove(const std::string& client, const std::string& id) {
  const JobRecord record = known(client, id);
  JobPtr job;
  {
    const std::lock_guard lock(mutex_);
    job = find_live(id);
  }
  if (job && cancel(job)) return show(client, id);
  store_.remove(record.id);
  const std::lock_guard lock(mutex_);
  live_.erase(id);
  std::erase(ended_, id);
  std::erase_if(unwritten_, [&](const JobRecord& one) { return one.id == id; });
  return {{"removed", true}};
}

bool Jobs::cancel(const JobPtr& job) {
  const std::lock_guard lock(mutex_);
  if (ended(job->record.state)) return false;
  queue_.remove(*job);
  job->record.error = {};
  finish(*job, JobState::cancelled);
  if (const auto run = job->run)
    if (std::all_of(run->jobs.begin(), run->jobs.end(),
                    [](const Job* one) { return ended(one->record.state); })) {
      run->stop.request_stop();
      changed_.notify_all();
    }
  tell_positions();
  return true;
}

JobRecord Jobs::record(const Job& job) const {
  const std::lock_guard lock(mutex_);
  return job.record;
}

Json Jobs::status() const {
  const std::lock_guard lock(mutex_);
  Json running = Json::array();
  for (const auto& run : running_)
    for (const Job* job : run->jobs)
      if (job->record.state == JobState::running) running.push_back(job->record.id);
  std::map<std::string, int> aside;
  for (const auto& [id, job] : live_)
    if (!job->served && !ended(job->record.state)) ++aside[job->record.model];
  return {{"queue", {{"waiting", waiting()}, {"limit", options_.queue}}},
          {"running", running},
          {"models_absent", aside}};
}

bool Jobs::closing() const {
  const std::lock_guard lock(mutex_);
  return closing_;
}

std::pair<size_t, size_t> Jobs::standing() const {
  const std::lock_guard lock(mutex_);
  size_t running = 0;
  for (const auto& run : running_)
    running += size_t(std::ranges::count_if(
        run->jobs, [](const Job* job) { return job->record.state == JobState::running; }));
  return {waiting(), running};
}

void Jobs::tend() {
  try {
    write_down();
    for (const std::string& id : store_.ended_before(now() - options_.keep, 100)) {
      store_.remove(id);
      const std::lock_guard lock(mutex_);
      live_.erase(id);
      std::erase(ended_, id);
    }
  } catch (const Refusal& refusal) {  // the store takes nothing, and may later
    if (refusal.status() != 507) throw;
  }
}

void Jobs::write_down() {
  const std::lock_guard lock(mutex_);
  for (; !unwritten_.empty(); unwritten_.pop_front()) store_.put(unwritten_.front());
}

void Jobs::close(double grace) {
  std::unique_lock lock(mutex_);
  closing_ = true;
  changed_.notify_all();
  const auto none = [this] { return running_.empty(); };
  if (changed_.wait_for(lock, std::chrono::duration<double>(grace), none)) return;
  requeue_ = true;
  for (const auto& run : running_) run->stop.request_stop();
  changed_.notify_all();
  changed_.wait(lock, none);
}

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

// Under the lock: how many these are.
size_t Jobs::waiting() const {
  size_t count = queue_.size();
  for (const auto& run : running_)
    count += size_t(std::ranges::count_if(
        run->jobs, [](const Job* job) { return job->record.state == JobState::queued; }));
  return count;
}

// Under the lock: where the first of them stand.
void Jobs::tell_positions() {
  const std::vector<Job*> order = line();
  for (size_t i = 0; i < std::min<size_t>(order.size(), 16); ++i)
    order[i]->events.add("state", text_of(queued_at(*order[i], i)));
}

// Under the lock, but for jobs that nobody knows yet.
void Jobs::finish(Job& job, JobState state) {
  JobRecord& r = job.record;
  r.state = state;
  r.ended = now();
  r.last_event = job.events.last_id() + 1;
  try {
    store_.put(r);
  } catch (const Refusal& refusal) {  // until it is written, it begins again after a restart
    if (state == JobState::done) {
      r.state = JobState::failed;
      r.error = body_of(refusal)["error"];
    }
    unwritten_.push_back(r);
  }
  const auto [last, said] = last_event_of(r);
  job.events.add(last, text_of(said), true);
  metrics_.job(r.model, word_of(r.state), r.started > 0 ? r.started - r.created : 0,
               r.started > 0 ? r.ended - r.started : 0);
  ended_.push_back(r.id);
  while (ended_.size() > kRecent) {
    live_.erase(ended_.front());
    ended_.pop_front();
  }
}

}  // namespace tessera::server
