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

/// Whether an address takes multipart/form-data, too.
bool takes_form(const std::string& path);
/// Bytes of a body at an address at most.
int64_t most_body(const ServeOptions& options, const std::string& path);

/// Looked at before a body is read. Throws Refusal: 404 for an address that does not exist, 405 for
/// another method than it has, 415 for a body of another type.
void check_address(const HttpRequest& request);

/// The answer to a request whose address was checked. Throws Refusal.
HttpReply route(const Parts& parts, const HttpRequest& request);

/// Server-sent events, which no proxy may keep back.
HttpReply event_stream(std::shared_ptr<Stream> stream);

/// The events of a job as they come; `after`: the number of the last one that is known.
HttpReply stream_events(const JobPtr& job, uint64_t after);

}  // namespace tessera::server
