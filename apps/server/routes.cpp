#include "server/routes.h"

#include <algorithm>
#include <charconv>

#include "server/fields.h"
#include "server/header_values.h"
#include "server/openai.h"
#include "server/page_files.h"
#include "tessera/version.h"

namespace tessera::server {
namespace {

constexpr int kMostListed = 200;

uint64_t number_in(const std::string& text, const std::string& name, uint64_t least,
                   uint64_t most) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value < least || value > most)
    throw wrong(name, name + ": expected a whole number from " + std::to_string(least) + " to " +
                          std::to_string(most));
  return value;
}

// Methods of an address; "": unknown address.
std::string methods_at(const std::string& path) {
  std::string read = "GET, HEAD";
  for (const char* address : {"/v1/images/generations", "/v1/images/edits", "/v1/images/variations",
                              "/v1/completions", "/v1/chat/completions"})
    if (path == address) return "POST";
  if (path == "/jobs") return read + ", POST";
  if (path.starts_with("/jobs/")) {
    const size_t slash = path.find('/', std::string("/jobs/").size());
    if (slash == std::string::npos) return read + ", DELETE";
    const std::string rest = path.substr(slash);
    return rest == "/events" || rest.starts_with("/results/") ? read : "";
  }
  for (const char* address :
       {"/", "/models", "/status", "/metrics", "/healthz", "/readyz", "/v1/models"})
    if (path == address) return read;
  return path.starts_with("/assets/") || path.starts_with("/v1/models/") ? read : "";
}

std::string query_of(const HttpRequest& request, const std::string& name) {
  const auto it = request.query.find(name);
  return it == request.query.end() ? "" : it->second;
}

HttpReply plain(const std::string& text, int status = 200) {
  HttpReply reply;
  reply.status = status;
  reply.type = "text/plain; charset=utf-8";
  reply.body = text;
  return reply;
}

class EventStream : public Stream {
 public:
  EventStream(JobPtr job, uint64_t after) : job_(std::move(job)), after_(after) {}
  Piece next(const Wake& wake) override {
    // Takes a single event, so that a slow client keeps few old events alive.
    const EventLog::Part part = job_->events.after(after_, wake, 1);
    if (part.events.empty()) return {nullptr, part.ended};
    after_ = part.events[0].id;
    return {part.events[0].text, part.ended};
  }

 private:
  JobPtr job_;
  uint64_t after_;
};

HttpReply list_models(const Parts& parts) {
  Json list = Json::array();
  for (const auto& served : parts.models.all()) list.push_back(json_of(served->facts));
  return json_reply({{"models", list}});
}

// Client whose numbers a request may see; "": all.
std::string seen_by(const HttpRequest& request) { return request.sees_all ? "" : request.client; }

HttpReply show_status(const Parts& parts, const HttpRequest& request) {
  Json status = parts.jobs.status(seen_by(request));
  status["version"] = kVersion;
  status["uptime"] = now() - parts.start_time;
  if (request.sees_all) status["clients"] = parts.connections();
  return json_reply(status);
}

HttpReply show_metrics(const Parts& parts, const HttpRequest& request) {
  const std::string client = seen_by(request);
  const auto [waiting, running] = parts.jobs.standing(client);
  parts.metrics.connections(parts.connections());
  HttpReply reply = plain(parts.metrics.text(client, double(waiting), double(running)));
  reply.type = "text/plain; version=0.0.4; charset=utf-8";
  return reply;
}

HttpReply post_job(const Parts& parts, const HttpRequest& request) {
  const Json body = parse_body(request.body);
  Fields fields(body, "body");
  std::string model;
  int64_t previews = 0;
  fields.text("model", model);
  fields.whole("previews", 0, 1 << 20, previews);
  const Json* job_request = fields.take("request");
  fields.finish();
  if (!job_request) throw wrong("request", "request is missing: say what to make");
  const JobPtr job =
      parts.jobs.submit(request.client, model, *job_request, static_cast<int>(previews));
  const Json job_status = parts.jobs.show(request.client, job->record.id);
  Json answer = {{"id", job->record.id}, {"state", job_status["state"]}};
  if (job_status.contains("position")) answer["position"] = job_status["position"];
  HttpReply reply = json_reply(answer, 202);
  reply.headers.emplace_back("Location", "/jobs/" + job->record.id);
  return reply;
}

HttpReply list_jobs(const Parts& parts, const HttpRequest& request) {
  const std::string limit = query_of(request, "limit");
  const uint64_t most = limit.empty() ? 50 : number_in(limit, "limit", 1, kMostListed);
  return json_reply(
      parts.jobs.list(request.client, static_cast<int>(most), query_of(request, "before")));
}

HttpReply show_events(const Parts& parts, const HttpRequest& request, const std::string& id) {
  std::string after = request.header("last-event-id");
  if (after.empty()) after = query_of(request, "last_event_id");
  const uint64_t number = after.empty() ? 0 : number_in(after, "Last-Event-ID", 0, UINT64_MAX - 1);
  return stream_events(parts.jobs.events_of(request.client, id), number);
}

HttpReply show_result(const Parts& parts, const HttpRequest& request, const std::string& id,
                      const std::string& number) {
  const auto [path, type] =
      parts.jobs.file(request.client, id, number_in(number, "result", 0, 1 << 20));
  HttpReply reply;
  reply.file = path;
  reply.type = type;
  reply.headers.emplace_back("Cache-Control", "private, max-age=3600, immutable");
  return reply;
}

// /jobs/ID, /jobs/ID/events, /jobs/ID/results/N
HttpReply route_job(const Parts& parts, const HttpRequest& request, const std::string& rest) {
  const size_t slash = std::min(rest.find('/'), rest.size());
  const std::string id = rest.substr(0, slash), action = rest.substr(slash);
  if (request.method == "DELETE" && action.empty())
    return json_reply(query_of(request, "cancel") == "1" ? parts.jobs.cancel(request.client, id)
                                                         : parts.jobs.remove(request.client, id));
  if (action.empty()) return json_reply(parts.jobs.show(request.client, id));
  if (action == "/events") return show_events(parts, request, id);
  if (action.starts_with("/results/"))
    return show_result(parts, request, id, action.substr(std::string("/results/").size()));
  throw not_found("there is nothing at '" + request.path.substr(0, 200) + "'");
}

HttpReply route_post(const Parts& parts, const HttpRequest& request) {
  if (request.path == "/jobs") return post_job(parts, request);
  if (request.path == "/v1/images/generations") return openai_images(parts, request);
  if (takes_form(request.path)) return openai_edits(parts, request);
  if (request.path == "/v1/completions") return openai_completions(parts, request);
  return openai_chat(parts, request);
}

HttpReply route_get(const Parts& parts, const HttpRequest& request) {
  const std::string& path = request.path;
  if (path == "/" || path.starts_with("/assets/")) return page_file(request);
  if (path == "/models") return list_models(parts);
  if (path == "/status") return show_status(parts, request);
  if (path == "/jobs") return list_jobs(parts, request);
  if (path == "/metrics") return show_metrics(parts, request);
  if (path == "/healthz") return plain("ok\n");
  if (path == "/readyz")
    return parts.jobs.closing() ? plain("the server is about to end\n", 503) : plain("ok\n");
  if (path == "/v1/models" || path.starts_with("/v1/models/"))
    return openai_models(parts, path.substr(std::string("/v1/models").size()));
  throw not_found("there is nothing at '" + path.substr(0, 200) + "'");
}

}  // namespace

void check_address(const HttpRequest& request) {
  const std::string methods = methods_at(request.path), address = request.path.substr(0, 200);
  if (methods.empty()) throw not_found("there is nothing at '" + address + "'");
  if ((", " + methods + ",").find(", " + request.method + ",") == std::string::npos)
    throw Refusal(405, "invalid_request_error",
                  "there is no method '" + request.method.substr(0, 20) + "' at '" + address +
                      "': it has " + methods,
                  "", 0, methods);
  if (request.method != "POST") return;
  const std::string type = media_type_of(request.header("content-type"));
  const bool form = takes_form(request.path);
  if (type != "application/json" && !(form && type == "multipart/form-data"))
    throw Refusal(415, "invalid_request_error",
                  std::string("send a body of Content-Type: ") +
                      (form ? "multipart/form-data or " : "") + "application/json");
}

bool takes_form(const std::string& path) {
  return path == "/v1/images/edits" || path == "/v1/images/variations";
}

int64_t most_body(const ServeOptions& options, const std::string& path) {
  const bool images = takes_form(path) || path == "/jobs";
  return images ? std::max(options.body, options.image_body) : options.body;
}

HttpReply event_stream(std::shared_ptr<Stream> stream) {
  HttpReply reply;
  reply.type = "text/event-stream";
  reply.stream = std::move(stream);
  reply.headers = {{"X-Accel-Buffering", "no"}, {"Cache-Control", "no-cache"}};
  return reply;
}

HttpReply stream_events(const JobPtr& job, uint64_t after) {
  // After a restart a client's number may exceed the log's; the log is then sent from the start.
  const uint64_t last = job->events.last_id();
  return event_stream(std::make_shared<EventStream>(job, after > last ? 0 : after));
}

HttpReply route(const Parts& parts, const HttpRequest& request) {
  if (request.path.starts_with("/jobs/"))
    return route_job(parts, request, request.path.substr(std::string("/jobs/").size()));
  return request.method == "POST" ? route_post(parts, request) : route_get(parts, request);
}

}  // namespace tessera::server
