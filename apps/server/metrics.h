#pragma once

#include <memory>
#include <string>
#include <vector>

namespace tessera::server {

/// Metrics of /metrics in the text format of Prometheus. Thread-safe.
class Metrics {
 public:
  /// `clients` get counters of their own beside the totals.
  explicit Metrics(const std::vector<std::string>& clients = {});
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// Counts an answered request.
  void request(const std::string& client, const std::string& method, int status, double seconds);
  /// Counts an ended job by state, with seconds of waiting and running (0: never ran).
  void job(const std::string& client, const std::string& model, const std::string& state,
           double waited, double ran);
  /// Counts jobs that began as a single request.
  void batch(const std::string& model, size_t jobs);
  /// Counts jobs joined to a running request.
  void joined(const std::string& model, size_t jobs);
  /// Counts a pause of a run in favour of others between two steps.
  void stood_back(double seconds);
  /// Counts denoising steps, or generated tokens.
  void steps(const std::string& client, const std::string& model, double count);
  void tokens(const std::string& client, const std::string& model, double count);
  /// Sets the number of open connections.
  void connections(double count);

  /// Text for `client` ("": for all and the process), with the current numbers of waiting and
  /// running jobs.
  std::string text(const std::string& client, double waiting, double running) const;

 private:
  struct Numbers;
  struct State;
  template <class Add>
  void add(const std::string& client, const Add& to);
  std::unique_ptr<State> state_;
};

}  // namespace tessera::server
