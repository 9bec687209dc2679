#pragma once

#include <string>

#include "server/http.h"
#include "server/jobs.h"
#include "server/metrics.h"
#include "server/models.h"

namespace tessera::server {

/// What the answers are made of.
struct Parts {
  const Models& models;
  Jobs& jobs;
  Metrics& metrics;
  std::function<unsigned()> connections;
  double begun = 0;
};

/// The answer to a request. Throws Refusal.
HttpReply route(const Parts& parts, const HttpRequest& request);

/// The events of a job as they come; `after`: the number of the last one that is known.
HttpReply stream_events(const JobPtr& job, uint64_t after);

}  // namespace tessera::server
