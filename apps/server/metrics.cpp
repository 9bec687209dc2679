#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <fstream>
#include <map>

namespace tessera::server {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;

const Histogram::BucketBoundaries kSeconds{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1,
                                           3,     10,    30,   100,  300, 1000};
const Histogram::BucketBoundaries kJobs{1, 2, 4, 8, 16, 32};

prometheus::Family<Counter>& counter(prometheus::Registry& registry, const char* name,
                                     const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}
prometheus::Family<Histogram>& histogram(prometheus::Registry& registry, const char* name,
                                         const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}
Gauge& gauge(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0, resident = 0;
  file >> total >> resident;
  return resident * double(sysconf(_SC_PAGESIZE));
}

}  // namespace

// Counters of each client, and of all.
struct Metrics::Numbers {
  prometheus::Registry registry;
  prometheus::Family<Counter>& requests =
      counter(registry, "tessera_requests_total", "HTTP requests that were answered");
  prometheus::Family<Histogram>& request_seconds =
      histogram(registry, "tessera_request_seconds", "From a request to the end of its answer");
  prometheus::Family<Counter>& jobs =
      counter(registry, "tessera_jobs_total", "Jobs that ended, by how");
  prometheus::Family<Histogram>& job_seconds =
      histogram(registry, "tessera_job_seconds", "Seconds that jobs waited and ran");
  prometheus::Family<Counter>& steps =
      counter(registry, "tessera_steps_total", "Denoising steps of samples");
  prometheus::Family<Counter>& tokens =
      counter(registry, "tessera_tokens_total", "Tokens of answers");
  Gauge& waiting = gauge(registry, "tessera_jobs_waiting", "Jobs in the queue");
  Gauge& running = gauge(registry, "tessera_jobs_running", "Jobs that run");
};

struct Metrics::State {
  Numbers all;
  std::map<std::string, Numbers> own;
  prometheus::Family<Histogram>& batches =
      histogram(all.registry, "tessera_batch_jobs", "Jobs that ran as one request");
  prometheus::Family<Counter>& joined =
      counter(all.registry, "tessera_jobs_joined_total", "Jobs that joined a request at work");
  prometheus::Family<Counter>& stood_back =
      counter(all.registry, "tessera_stood_back_seconds_total",
              "Seconds that runs stood back for others, which had less of the cores");
  Gauge& connections = gauge(all.registry, "tessera_connections", "Connections that are open");
  Gauge& resident = gauge(all.registry, "process_resident_memory_bytes", "Memory of the process");
};

Metrics::Metrics(const std::vector<std::string>& clients) : state_(std::make_unique<State>()) {
  for (const std::string& client : clients) state_->own.try_emplace(client);
}
Metrics::~Metrics() = default;

template <class Add>
void Metrics::add(const std::string& client, const Add& to) {
  to(state_->all);
  if (const auto own = state_->own.find(client); own != state_->own.end()) to(own->second);
}

void Metrics::request(const std::string& client, const std::string& name, int status,
                      double seconds) {
  // Unknown methods of clients must not become permanent labels.
  const bool is_known = name == "GET" || name == "HEAD" || name == "POST" || name == "DELETE";
  const std::string method = is_known ? name : "other";
  add(client, [&](Numbers& to) {
    to.requests.Add({{"method", method}, {"status", std::to_string(status)}}).Increment();
    to.request_seconds.Add({{"method", method}}, kSeconds).Observe(seconds);
  });
}

void Metrics::job(const std::string& client, const std::string& model, const std::string& state,
                  double waited, double ran) {
  add(client, [&](Numbers& to) {
    to.jobs.Add({{"model", model}, {"state", state}}).Increment();
    if (ran <= 0) return;
    to.job_seconds.Add({{"model", model}, {"part", "wait"}}, kSeconds).Observe(waited);
    to.job_seconds.Add({{"model", model}, {"part", "run"}}, kSeconds).Observe(ran);
  });
}

void Metrics::batch(const std::string& model, size_t jobs) {
  state_->batches.Add({{"model", model}}, kJobs).Observe(double(jobs));
}

void Metrics::joined(const std::string& model, size_t jobs) {
  state_->joined.Add({{"model", model}}).Increment(double(jobs));
}

void Metrics::stood_back(double seconds) { state_->stood_back.Add({}).Increment(seconds); }

void Metrics::steps(const std::string& client, const std::string& model, double count) {
  add(client, [&](Numbers& to) { to.steps.Add({{"model", model}}).Increment(count); });
}

void Metrics::tokens(const std::string& client, const std::string& model, double count) {
  add(client, [&](Numbers& to) { to.tokens.Add({{"model", model}}).Increment(count); });
}

void Metrics::connections(double count) { state_->connections.Set(count); }

std::string Metrics::text(const std::string& client, double waiting, double running) const {
  state_->resident.Set(resident_bytes());
  const auto own = state_->own.find(client);
  Numbers& numbers = own == state_->own.end() ? state_->all : own->second;
  numbers.waiting.Set(waiting);
  numbers.running.Set(running);
  return prometheus::TextSerializer().Serialize(numbers.registry.Collect());
}

}  // namespace tessera::server
