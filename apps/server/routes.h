#pragma once

#include <string>

#include "server/http.h"
#include "server/jobs.h"
#include "server/metrics.h"
#include "server/models.h"

namespace tessera::server {

/// Objects used by the routes.
struct Parts {
  const Models& models;
  Jobs& jobs;
  Metrics& metrics;
  std::function<unsigned()> connections;
  double start_time = 0;
};

/// True if an address also accepts multipart/form-data.
bool takes_form(const std::string& path);
/// Maximum body bytes of an address.
int64_t most_body(const ServeOptions& options, const std::string& path);

/// Checks a request before the body is read. Throws Refusal: 404 for an unknown address, 405 for a
/// wrong method, 415 for a wrong media type.
void check_address(const HttpRequest& request);

/// Answers a request with a checked address. Throws Refusal.
HttpReply route(const Parts& parts, const HttpRequest& request);

/// Sends server-sent events; proxies must not buffer them.
HttpReply event_stream(std::shared_ptr<Stream> stream);

/// Streams events of a job; `after`: number of the last known event.
HttpReply stream_events(const JobPtr& job, uint64_t after);

}  // namespace tessera::server
