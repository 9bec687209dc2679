#include "server/follow.h"

#include "server/batch.h"
#include "server/json_reader.h"
#include "server/refusal.h"

namespace tessera::server {
namespace {

// Limits for orders from rank 0, already checked there; an order is deeper by one level.
constexpr JsonLimits kOrder{.depth = 40, .values = SIZE_MAX, .searches = SIZE_MAX};

// Runs this rank's part. Errors common to all ranks are reported by rank 0.
void take_part(const std::vector<JobPtr>& jobs) {
  const Model& model = jobs.at(0)->served->model;
  try {
    if (jobs[0]->record.kind == Kind::text) {
      CompleteControl control;
      if (may_join(*jobs[0])) control.join = [] { return std::vector<std::vector<int32_t>>(); };
      model.complete(merged_texts(jobs, {}), control);
    } else {
      model.generate(merged_images(jobs));
    }
  } catch (const Error& e) {
    if (e.code() == ErrorCode::rank) throw;
  }
}

}  // namespace

std::string order_of(const std::vector<JobPtr>& jobs) {
  Json requests = Json::array();
  for (const JobPtr& job : jobs) requests.push_back(job->record.request);
  return text_of({{"model", jobs.at(0)->record.model},
                  {"previews", jobs[0]->record.previews},
                  {"alone", jobs[0]->alone},
                  {"requests", requests}});
}

std::vector<JobPtr> jobs_of(const std::string& order, const Models& models, const Limits& limits) {
  const Json fields = parse_object(order, "the order", "", kOrder);
  std::vector<JobPtr> jobs;
  for (const Json& request : fields.at("requests")) {
    auto job = std::make_shared<Job>();
    job->served = &models.find(fields.at("model"));
    job->record.model = job->served->facts.name;
    job->record.kind = job->served->facts.kind;
    job->record.request = request;
    job->record.previews = fields.at("previews");
    job->alone = fields.at("alone");
    read_ask(*job, limits);
    jobs.push_back(std::move(job));
  }
  return jobs;
}

void follow(const Models& models, const Limits& limits, const Processes& processes) {
  while (true) {
    const std::string message = processes.share("");
    if (message == kEnd) return;
    if (message != kNothing) take_part(jobs_of(message, models, limits));
  }
}

}  // namespace tessera::server
