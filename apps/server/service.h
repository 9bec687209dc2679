#pragma once

namespace tessera::server {

/// Compute time of a run, in seconds of a given clock. Among concurrent runs, the run with the
/// least attained service goes first, because the remaining time is unknown: the others pause
/// between steps, for at most two thirds of the time.
class Service {
 public:
  /// A run begins, or a job joins with no service yet.
  void begin(double now) {
    begun_ = now;
    stood_back_ = 0;
  }
  /// A step ended, or the first step begins. Returns the permitted pause in seconds.
  double step(double now) {
    const double took = computes_ ? now - stepped_ : 0;
    computes_ = true;
    stepped_ = now;
    return 2 * took;
  }
  /// The run resumes after a pause.
  void go_on(double now) {
    stood_back_ += now - stepped_;
    stepped_ = now;
  }
  bool computes() const { return computes_; }
  double attained(double now) const { return now - begun_ - stood_back_; }
  /// True if another run must pause for this one: this run computes and got less than half as much.
  bool comes_before(const Service& other, double now) const {
    return computes_ && 2 * attained(now) < other.attained(now);
  }

 private:
  double begun_ = 0, stepped_ = 0, stood_back_ = 0;
  bool computes_ = false;  // the run does not read a file or wait for memory
};

}  // namespace tessera::server
