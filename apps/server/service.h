#pragma once

namespace tessera::server {

/// For how long a run has been at work, in seconds of one clock. Of runs that share the cores the
/// one that got less goes first ("least attained service"), as nobody knows how long one will last:
/// the others stand back between their steps, for two thirds of the time at most.
class Service {
 public:
  /// The run begins, or a job joins it, which has had nothing yet.
  void begin(double now) {
    begun_ = now;
    stood_back_ = 0;
  }
  /// A step has ended, or the first one begins: for how long the run may stand back now.
  double step(double now) {
    const double took = computes_ ? now - stepped_ : 0;
    computes_ = true;
    stepped_ = now;
    return 2 * took;
  }
  /// It has stood back since its step.
  void go_on(double now) {
    stood_back_ += now - stepped_;
    stepped_ = now;
  }
  bool computes() const { return computes_; }
  double attained(double now) const { return now - begun_ - stood_back_; }
  /// Whether another run stands back for this one: it computes, and got less than half as much.
  bool comes_before(const Service& other, double now) const {
    return computes_ && 2 * attained(now) < other.attained(now);
  }

 private:
  double begun_ = 0, stepped_ = 0, stood_back_ = 0;
  bool computes_ = false;  // it does not read a file, or wait for memory
};

}  // namespace tessera::server
