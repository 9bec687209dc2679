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
/// Throws std::invalid_argument for an unknown word.
JobState state_of(const std::string& word);
inline bool ended(JobState state) { return state > JobState::running; }

/// Stored data of a job: a row of the store. Times are seconds since 1970; 0: not yet.
struct JobRecord {
  int64_t number = 0;  ///< order of arrival
  std::string id, client, model;
  Kind kind = Kind::image;
  JobState state = JobState::queued;
  double created = 0, started = 0, ended = 0;
  Json request;
  int previews = 0;              ///< a preview every so many steps; 0: none
  Json results = Json::array();  ///< {file, type, width, height, seed}
  Json text;                     ///< answer, or a list of several answers
  Json error, report, usage;
  uint64_t last_event = 0;
};

struct Job;
/// Jobs that run as one request. The run stops after all of them are cancelled.
struct Run {
  std::stop_source stop;
  std::vector<Job*> jobs;
  Service service;  ///< guarded by the lock of Jobs
};

/// A waiting or running job. The lock of Jobs guards the record.
struct Job {
  JobRecord record;
  Ask ask;  ///< the parsed request
  const Served* served = nullptr;
  std::shared_ptr<Run> run;  ///< set while the job runs or waits for memory
  Json waits_for;            ///< {type, message} during a wait for memory; null: no wait
  size_t image_bytes = 0;    ///< bytes of the images; memory holds two copies
  bool alone = false;        ///< run alone, because a merged run failed
  int step = 0, steps = 0;
  double step_seconds = 0;
  EventLog events;
};
using JobPtr = std::shared_ptr<Job>;

/// Parses the request of the record. Throws Refusal(400).
void read_ask(Job& job, const Limits& limits);

/// {step, steps, seconds}
Json progress_of(const Job& job);
/// JSON of an ended job for clients.
Json json_of(const JobRecord& record);
/// JSON of a waiting or running job, with progress; `position` is the place in the queue from 0
/// (-1: none).
Json json_of(const Job& job, int position);
/// Bytes of result files.
int64_t bytes_of(const Json& results);
/// Data of the event `state` for a waiting job.
Json queued_at(const Job& job, size_t position);
/// Result files of a job for clients.
Json results_of(const JobRecord& record);
/// Name and data of the event that ends a job's log.
std::pair<std::string, Json> last_event_of(const JobRecord& record);

/// Seconds since 1970.
double now();
/// Seconds of a monotonic clock.
double steady_seconds();
/// 24 random characters that cannot be guessed.
std::string random_id();

}  // namespace tessera::server
