#pragma once

#include "cluster/ranks.h"

namespace tessera::pipeline {

/// A request on the ranks of this process, for images or text. Every process takes each step; no
/// process begins to load before all have admitted the request, or to launch before all have
/// loaded. An error of one is thrown by all.
class Run {
 public:
  virtual ~Run() = default;
  /// All steps in order.
  void on(const cluster::Ranks& ranks);

 protected:
  /// Compares the request with other processes (Ranks::require_same).
  virtual void agree() = 0;
  /// Plans the request, and reserves its memory.
  virtual void admit() = 0;
  /// Gives notes to the caller, and does work that ranks of several processes share.
  virtual void announce() = 0;
  virtual const char* loads() const = 0;  ///< for errors of other processes: "loads its part"
  virtual void load() = 0;
  /// Runs the ranks of this process, and gathers results and reports at rank 0.
  virtual void launch() = 0;
  /// Completes the results.
  virtual void report() = 0;
};

}  // namespace tessera::pipeline
