#include "server/jobs.h"

#include <algorithm>
#include <chrono>

#include "server/brief.h"
#include "server/image_fields.h"
#include "server/refusal.h"

namespace tessera::server {
namespace {
constexpr size_t kRecent = 64;                     // number of ended jobs with kept events
constexpr size_t kEndedImages = size_t{32} << 20;  // image bytes of ended jobs

int place_in(const std::vector<Job*>& line, const Job& job) {
  const auto at = std::ranges::find(line, &job);
  return at == line.end() ? -1 : static_cast<int>(at - line.begin());
}
}  // namespace

Jobs::Jobs(const Models& models, Store& store, Metrics& metrics, const ServeOptions& options,
           int clients)
    : models_(models),
      store_(store),
      metrics_(metrics),
      options_(options),
      own_(clients > 0),
      shares_{clients, options.queue, options.run.processes ? 1 : options.at_once,
              options.store_limit} {
  if (options_.prefix_cache > 0) conversations_.emplace(options_.prefix_cache);
  restore();
  try {
    const int workers = options_.run.processes ? 1 : shares_.most_runs();
    for (int i = 0; i < workers; ++i) workers_.emplace_back([this] { work(); });
  } catch (...) {  // started threads wait for the end
    close(0);
    throw;
  }
}

Jobs::~Jobs() {
  close(0);
  workers_.clear();
}

// Restores jobs that an earlier server accepted and did not end.
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
    } catch (const Refusal& refusal) {  // limits or model of the earlier server differ
      job->record.error = body_of(refusal)["error"];
      finish(*job, JobState::failed);
    }
  }
}

// Parks a job outside the queue until a server has its model; the store keeps the record.
void Jobs::set_aside(const JobPtr& job) {
  JobRecord& r = job->record;
  r.error = body_of({503, "model_absent",
                     "model '" + r.model +
                         "' is not served now: the job waits for a server that is started with it, "
                         "too; or remove the job"})["error"];
  job->events.add("state", text_of({{"state", "queued"}, {"error", r.error}}));
  live_[r.id] = job;
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
  try {
    std::visit([&](const auto& ask) { job->served->model.check(ask); }, job->ask);
  } catch (const Error& error) {
    throw models_.with_names(error);
  }
  check_disk(client);
  {
    const std::lock_guard lock(mutex_);
    check_room(client, job->image_bytes);
    store_.put(r);
    live_[r.id] = job;
    job->events.add("state", text_of(queued_at(*job, waiting(""))));
    queue_.push(job);
  }
  changed_.notify_all();  // other threads wait on the same condition
  return job;
}

JobPtr Jobs::find_live(const std::string& id) const {
  const auto it = live_.find(id);
  return it == live_.end() ? nullptr : it->second;
}

JobRecord Jobs::known(const std::string& client, const std::string& id) const {
  std::optional<JobRecord> record;
  {
    const std::lock_guard lock(mutex_);
    const auto same = [&](const JobRecord& other) { return other.id == id; };
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
  auto listed = store_.list(own_ ? client : "", limit, before);
  Json jobs = Json::array();
  const std::lock_guard lock(mutex_);
  const std::vector<Job*> order = line();
  for (auto& [stored_id, brief] : listed) {
    const JobPtr job = find_live(stored_id);
    if (!job)
      jobs.push_back(std::move(brief));
    else if (ended(job->record.state))
      jobs.push_back(brief_of(json_of(job->record)));
    else
      jobs.push_back(brief_of(json_of(*job, place_in(order, *job))));
  }
  return {{"jobs", jobs}};
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
  const Json& result = record.results[number];
  std::string path = store_.file(record.id, result["file"]);
  if (path.empty()) throw not_found("the file of this result is gone");
  return {std::move(path), result["type"]};
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
  forget(record.id);
  return {{"removed", true}};
}

bool Jobs::cancel(const JobPtr& job) {
  const std::lock_guard lock(mutex_);
  if (ended(job->record.state)) return false;
  stop(*job, JobState::cancelled, {});
  return true;
}

// Ends a waiting or running job from outside. Requires the lock.
void Jobs::stop(Job& job, JobState state, const Json& error) {
  queue_.remove(job);
  job.record.error = error;
  finish(job, state);
  if (const auto run = job.run)
    if (std::ranges::all_of(run->jobs,
                            [](const Job* other) { return ended(other->record.state); })) {
      run->stop.request_stop();
      changed_.notify_all();
    }
  tell_positions();
}

JobRecord Jobs::record(const Job& job) const {
  const std::lock_guard lock(mutex_);
  return job.record;
}

Json Jobs::status(const std::string& client) const {
  const auto is_of = [&](const Job& job) { return client.empty() || job.record.client == client; };
  const std::lock_guard lock(mutex_);
  Json running = Json::array();
  for (const auto& run : running_)
    for (const Job* job : run->jobs)
      if (job->record.state == JobState::running && is_of(*job)) running.push_back(job->record.id);
  std::map<std::string, int> aside;
  for (const auto& [id, job] : live_)
    if (!job->served && !ended(job->record.state) && is_of(*job)) ++aside[job->record.model];
  const size_t limit = client.empty() ? size_t(options_.queue) : shares_.most_queue();
  return {{"queue", {{"waiting", waiting(client)}, {"limit", limit}}},
          {"running", running},
          {"models_absent", aside}};
}

bool Jobs::closing() const {
  const std::lock_guard lock(mutex_);
  return closing_;
}

std::pair<size_t, size_t> Jobs::standing(const std::string& client) const {
  const std::lock_guard lock(mutex_);
  size_t running = 0;
  for (const auto& run : running_)
    running += size_t(std::ranges::count_if(run->jobs, [&](const Job* job) {
      return job->record.state == JobState::running &&
             (client.empty() || job->record.client == client);
    }));
  return {waiting(client), running};
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

// Requires the lock, except for jobs not yet published.
void Jobs::finish(Job& job, JobState state) {
  JobRecord& r = job.record;
  r.state = state;
  r.ended = now();
  r.last_event = job.events.last_id() + 1;
  try {
    if (state == JobState::cancelled && r.started == 0)
      store_.remove(r.id);  // the job never ran: remove every trace
    else
      put_ended(job);
  } catch (const Refusal& refusal) {  // until written, the job runs again after a restart
    if (state == JobState::done) {
      r.state = JobState::failed;
      r.error = body_of(refusal)["error"];
    }
    unwritten_.push_back(r);
    unwritten_.back().request = without_images(r.request);
  }
  const auto [last, event] = last_event_of(r);
  job.events.add(last, text_of(event), true);
  metrics_.job(r.client, r.model, word_of(r.state), r.started > 0 ? r.started - r.created : 0,
               r.started > 0 ? r.ended - r.started : 0);
  ended_.push_back(r.id);
  while (ended_.size() > kRecent || (ended_.size() > 1 && image_bytes("", true) > kEndedImages)) {
    live_.erase(ended_.front());
    ended_.pop_front();
  }
}

// Stores an ended job without its images.
void Jobs::put_ended(Job& job) {
  if (job.image_bytes == 0) return store_.put(job.record);
  JobRecord record = job.record;
  record.request = without_images(record.request);
  store_.put(record);
}

// Bytes in memory of images of `client`'s jobs ("": of all). Requires the lock.
size_t Jobs::image_bytes(const std::string& client, bool of_ended) const {
  size_t bytes = 0;
  for (const auto& [id, job] : live_)
    if (ended(job->record.state) == of_ended && (client.empty() || job->record.client == client))
      bytes += job->image_bytes;
  return bytes;
}

}  // namespace tessera::server
