#include "server/job.h"

#include <chrono>
#include <random>

#include "server/image_fields.h"

namespace tessera::server {
namespace {
constexpr const char* kWords[] = {"queued", "running", "done", "failed", "cancelled"};
}  // namespace

const char* word_of(JobState state) { return kWords[static_cast<int>(state)]; }

JobState state_of(const std::string& word) {
  for (int i = 0; i < 5; ++i)
    if (word == kWords[i]) return static_cast<JobState>(i);
  throw Error(ErrorCode::model, "the store holds a job of no known state");
}

void read_ask(Job& job, const Limits& limits) {
  job.ask = read_request(job.record.request, job.served->facts, limits);
  auto* const q = std::get_if<GenerateRequest>(&job.ask);
  if (!q) return;
  q->previews = job.record.previews > 0;
  job.image_bytes = q->mask ? q->mask->bytes.size() : 0;
  for (const InputImage& image : q->images) job.image_bytes += image.bytes.size();
}

Json progress_of(const Job& job) {
  return {{"step", job.step}, {"steps", job.steps}, {"seconds", job.step_seconds}};
}

Json results_of(const JobRecord& record) {
  Json list = Json::array();
  for (size_t i = 0; i < record.results.size(); ++i) {
    Json result = record.results[i];
    result.erase("file");
    result["url"] = "/jobs/" + record.id + "/results/" + std::to_string(i);
    list.push_back(std::move(result));
  }
  return list;
}

Json json_of(const JobRecord& record) {
  const auto time = [](double seconds) { return seconds > 0 ? Json(seconds) : Json(); };
  Json json = {{"id", record.id},
               {"model", record.model},
               {"kind", word_of(record.kind)},
               {"state", word_of(record.state)},
               {"created", record.created},
               {"started", time(record.started)},
               {"ended", time(record.ended)},
               {"request", without_images(record.request)},
               {"previews", record.previews},
               {"results", results_of(record)}};
  if (!record.text.is_null()) json["text"] = record.text;
  if (!record.usage.is_null()) json["usage"] = record.usage;
  if (!record.error.is_null()) json["error"] = record.error;
  if (!record.report.is_null()) json["report"] = record.report;
  return json;
}

Json json_of(const Job& job, int position) {
  Json json = json_of(job.record);
  if (position >= 0) json["position"] = position;
  if (!job.waits_for.is_null()) json["waits_for"] = job.waits_for;
  json["progress"] = progress_of(job);
  return json;
}

int64_t bytes_of(const Json& results) {
  int64_t bytes = 0;
  for (const Json& result : results) bytes += result.value("bytes", int64_t{0});
  return bytes;
}

Json queued_at(const Job& job, size_t position) {
  Json data = {{"state", "queued"}, {"position", position}};
  if (!job.waits_for.is_null()) data["waits_for"] = job.waits_for;
  return data;
}

std::pair<std::string, Json> last_event_of(const JobRecord& record) {
  if (record.state == JobState::failed) return {"failed", {{"error", record.error}}};
  if (record.state == JobState::cancelled) return {"cancelled", Json::object()};
  Json data = {{"results", results_of(record)}, {"report", record.report}};
  if (!record.text.is_null()) data["text"] = record.text;
  if (!record.usage.is_null()) data["usage"] = record.usage;
  return {"done", data};
}

double now() {
  using Seconds = std::chrono::duration<double>;
  return Seconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

double steady_seconds() {
  using Seconds = std::chrono::duration<double>;
  return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string random_id() {
  thread_local std::random_device source;
  std::string id;
  while (id.size() < 24) {
    const unsigned bits = source();
    for (int i = 0; i < 8; ++i) id += "0123456789abcdef"[bits >> (4 * i) & 15];
  }
  return id;
}

}  // namespace tessera::server
