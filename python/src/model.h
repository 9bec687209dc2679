#pragma once

#include <nanobind/nanobind.h>
#include <sys/types.h>

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "tessera/engine.h"

namespace tessera::python {

/// A word from another thread, or from a callback, that ends work.
struct CancelToken {
  std::stop_source source;
};

/// How a model is opened, as Python says it.
struct OpenOptions {
  std::string dtype = "bf16", quantise_rules, device = "cpu", plan;
  int threads = 0, ranks = 0;
  int64_t memory_budget = 0;
  double comm_timeout = 60;
  bool keep_parts = true, map_weights = false, exact_quants = false;
  std::string transformer, vae, preview_vae;
  std::vector<std::string> text_encoders;
};

/// An open model, of one process: the threads of a model do not survive a fork.
class OpenModel {
 public:
  OpenModel(const std::string& model, const OpenOptions& options, const CancelToken* cancel);
  /// Leaves the model alone in a process that was forked: its threads are not there to be joined.
  ~OpenModel();
  OpenModel(const OpenModel&) = delete;
  OpenModel& operator=(const OpenModel&) = delete;
  /// Throws Error(usage) in a process that was forked.
  const Model& use() const;

 private:
  std::unique_ptr<Model> model_;
  pid_t process_;
};

/// OpenModel with all that it is asked for.
void bind_model(nanobind::module_& module);

}  // namespace tessera::python
