#include "server/serve.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <mutex>

#include "server/follow.h"
#include "server/guard.h"
#include "server/header_values.h"
#include "server/jobs.h"
#include "server/listener.h"
#include "server/routes.h"

namespace tessera::server {
namespace {

// Escapes a client's text for a terminal: short, ASCII, no control characters.
std::string log_text(const std::string& text, size_t most) {
  const std::string json =
      Json(text.substr(0, most)).dump(-1, ' ', true, Json::error_handler_t::replace);
  return json.substr(1, json.size() - 2);
}

// Formats a log line; method and path are as untrusted as a body.
std::string line_of(const Answered& a, bool json) {
  const std::string method = a.method.substr(0, 20), path = a.path.substr(0, 200);
  if (json)
    return Json({{"time", now()},
                 {"method", method},
                 {"path", path},
                 {"status", a.status},
                 {"seconds", a.seconds},
                 {"client", a.client},
                 {"address", a.address},
                 {"whole", a.whole}})
        .dump(-1, ' ', true, Json::error_handler_t::replace);
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.4f s", a.seconds);
  const std::string client_text = a.client == a.address ? "" : log_text(a.client, 200) + " ";
  return log_text(method, 20) + " " + log_text(path, 200) + " " + std::to_string(a.status) + " " +
         seconds + " " + client_text + a.address + (a.whole ? "" : " (left)");
}

Guard guard_of(const ServeOptions& o) {
  const bool loopback = is_loopback(o.host);
  if (!loopback && o.api_keys.empty())
    throw Error(ErrorCode::usage, "--host " + o.host +
                                      ": other machines may ask there; add --api-keys FILE, or "
                                      "leave --host out");
  return {o.api_keys.empty() ? ApiKeys() : ApiKeys(o.api_keys), loopback};
}

// Refuses to show jobs of clients with keys to everybody unless asked to.
void check_clients(const ServeOptions& o, const Store& store, bool keyed) {
  if (keyed || o.all_clients) return;
  for (const std::string& client : store.clients())
    if (!is_address(client))
      throw Error(
          ErrorCode::usage,
          "--store '" + store.folder() + "': its jobs belong to clients with keys ('" +
              client.substr(0, 100) +
              "'), and without --api-keys everybody here sees them; add --api-keys FILE, or "
              "--all-clients to show them");
}

void wait_for(const std::stop_token& stop, const std::function<void()>& each_second) {
  std::mutex mutex;
  std::condition_variable_any woken;
  std::unique_lock lock(mutex);
  while (!stop.stop_requested()) {
    woken.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; });
    each_second();
  }
}

}  // namespace

void serve(const ServeOptions& o, const std::stop_token& stop,
           const std::function<void(const std::string&)>& log) {
  RunOptions run = o.run;
  run.keep_parts = true;
  if (run.processes && run.processes->rank() > 0)
    return follow(Models(
                      o.models, run, {}, [](const std::string&) {}, o.files),
                  o.limits,
                  *run.processes);  // rank 0 says when to stop
  for (const std::string& model : o.models)
    check_files({model, {{"--api-keys", o.api_keys}}, {{"--store", o.store, FileKind::store}}});
  ::umask(077);  // prompts and results are private
  const Guard guard = guard_of(o);
  const std::vector<std::string> clients = guard.keys().names();
  Store store(o.store);
  check_clients(o, store, guard.keys().any());
  const auto note = [&](const std::string& text) {
    log(o.json_log ? text_of({{"time", now()}, {"note", text}}) : "note: " + text);
  };
  const Models models(o.models, run, stop, note, o.files);
  for (const std::string& name : guard.keys().rotated())
    note("client '" + name + "' has several keys; take the old one out when nobody sends it");
  Metrics metrics(clients);
  Jobs jobs(models, store, metrics, o, static_cast<int>(clients.size()));
  const Json absent = jobs.status("")["models_absent"];
  for (const auto& [model, count] : absent.items())
    note(text_of(count) + " of the store's jobs wait for the model '" + model +
         "', which is not served: start with it, too, or remove them");
  std::atomic<Listener*> open = nullptr;  // set by and for the listener's thread
  const auto connections = [&open] {
    Listener* const listener = open;
    return listener ? listener->connections() : 0U;
  };
  const Parts parts{models, jobs, metrics, connections, now()};
  Handlers handlers;
  handlers.admit = [&](HttpRequest& request) {
    guard.admit(request);
    check_address(request);
  };
  handlers.quick = [](const HttpRequest& request) {  // requests without locks of the jobs
    return is_open(request.path) && request.path != "/readyz";
  };
  handlers.handle = [&](const HttpRequest& request) { return route(parts, request); };
  handlers.log = [&](const Answered& answered) {
    metrics.request(answered.client, answered.method, answered.status, answered.seconds);
    log(line_of(answered, o.json_log));
  };
  Listener listener(o, std::move(handlers));
  open = &listener;
  const std::string url = listener.url();
  log(o.json_log ? text_of({{"time", now()}, {"listening", url}}) : "listening at " + url);
  wait_for(stop, [&] {
    listener.tend();
    jobs.tend();
    jobs.check_ranks();
  });
  log(o.json_log ? text_of({{"time", now()}, {"ending", true}})
                 : "ending: what runs has " + std::to_string(int(o.grace)) + " s");
  jobs.close(o.grace);
}

}  // namespace tessera::server
