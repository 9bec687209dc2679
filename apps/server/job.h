#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "server/events.h"
#include "server/json.h"
#include "server/models.h"
#include "server/request_reader.h"
#include "server/service.h"

namespace tessera::server {

enum class JobState { queued, running, done, failed, cancelled };
const char* word_of(JobState state);
/// Throws std::invalid_argument for a word that is none.
JobState state_of(const std::string& word);
inline bool ended(JobState state) { return state > JobState::running; }

/// What is kept of a job: a line of the store. Times are seconds since 1970; 0: not yet.
struct JobRecord {
  int64_t number = 0;  ///< order of arrival
  std::string id, client, model;
  Kind kind = Kind::image;
  JobState state = JobState::queued;
  double created = 0, started = 0, ended = 0;
  Json request;
  int previews = 0;              ///< one of so many steps is shown; 0: none
  Json results = Json::array();  ///< {file, type, width, height, seed}
  Json text;                     ///< of an answer; a list where there are several
  Json error, report, usage;
  uint64_t last_event = 0;
};

struct Job;
/// Jobs that run as one request: it is stopped when the last of them is cancelled.
struct Run {
  std::stop_source stop;
  std::vector<Job*> jobs;
  Service service;  ///< guarded by the lock of Jobs
};

/// A job that waits or runs. Its record is guarded by the lock of Jobs.
struct Job {
  JobRecord record;
  Ask ask;  ///< the request, read
  const Served* served = nullptr;
  std::shared_ptr<Run> run;  ///< while it runs, or waits for memory
  Json waits_for;          ///< {type, message} of one whose turn it is; null: it waits for nothing
  size_t image_bytes = 0;  ///< of its images, twice in memory
  bool alone = false;      ///< is not run with others: a run with them failed
  int step = 0, steps = 0;
  double step_seconds = 0;
  EventLog events;
};
using JobPtr = std::shared_ptr<Job>;

/// Reads the record's request. Throws Refusal(400).
void read_ask(Job& job, const Limits& limits);

/// {step, steps, seconds}
Json progress_of(const Job& job);
/// What a client sees of a job that has ended.
Json json_of(const JobRecord& record);
/// Of one that waits or runs: also how far it is; `position` is its place in the queue, from 0 (-1:
/// it has none).
Json json_of(const Job& job, int position);
/// Bytes of the files of results.
int64_t bytes_of(const Json& results);
/// The data of the event `state` of a job that waits.
Json queued_at(const Job& job, size_t position);
/// The files of a job as a client sees them.
Json results_of(const JobRecord& record);
/// The event that ends the log of a job: its name and data.
std::pair<std::string, Json> last_event_of(const JobRecord& record);

/// Seconds since 1970.
double now();
/// Seconds of a clock that nobody sets.
double steady_seconds();
/// 24 characters that nobody guesses.
std::string random_id();

}  // namespace tessera::server
