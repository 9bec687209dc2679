#pragma once

#include <memory>
#include <string>
#include <vector>

namespace tessera::server {

/// What /metrics tells, in Prometheus' text. May be used from all threads.
class Metrics {
 public:
  /// `clients` have numbers of their own beside those of all.
  explicit Metrics(const std::vector<std::string>& clients = {});
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// A request was answered.
  void request(const std::string& client, const std::string& method, int status, double seconds);
  /// A job ended: in which state, after how long a wait and run (0: it never ran).
  void job(const std::string& client, const std::string& model, const std::string& state,
           double waited, double ran);
  /// So many jobs began as one request.
  void batch(const std::string& model, size_t jobs);
  /// So many jobs joined a request that was at work.
  void joined(const std::string& model, size_t jobs);
  /// A run that had more of the cores waited for others between two steps.
  void stood_back(double seconds);
  /// Steps of denoising, or tokens of answers, that were made.
  void steps(const std::string& client, const std::string& model, double count);
  void tokens(const std::string& client, const std::string& model, double count);
  /// How many connections are open now.
  void connections(double count);

  /// Of `client` ("": of all, and of the process), with its jobs that wait and run now.
  std::string text(const std::string& client, double waiting, double running) const;

 private:
  struct Numbers;
  struct State;
  template <class Add>
  void add(const std::string& client, const Add& to);
  std::unique_ptr<State> state_;
};

}  // namespace tessera::server
