#pragma once

#include <nanobind/nanobind.h>
#include <sys/types.h>

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "tessera/engine.h"

namespace tessera::python {

/// Another thread, or a callback, ends work through this token.
struct CancelToken {
  std::stop_source source;
};

/// Python opens a model with these options.
struct OpenOptions {
  std::string dtype = "bf16", quantise_rules, device = "cpu", plan;
  int threads = 0, ranks = 0;
  int64_t memory_budget = 0;
  double comm_timeout = 60;
  bool keep_parts = true, map_weights = false, exact_quants = false;
  std::string transformer, vae, preview_vae;
  std::vector<std::string> text_encoders;
};

/// An open model belongs to a process, because the threads of a model do not survive a fork.
class OpenModel {
 public:
  OpenModel(const std::string& model, const OpenOptions& options, const CancelToken* cancel);
  /// Leaves the model alone in a forked process, where no thread of the model can be joined.
  ~OpenModel();
  OpenModel(const OpenModel&) = delete;
  OpenModel& operator=(const OpenModel&) = delete;
  /// Throws Error(usage) in a forked process.
  const Model& use() const;

 private:
  std::unique_ptr<Model> model_;
  pid_t process_;
};

/// Binds OpenModel and the classes of its arguments.
void bind_model(nanobind::module_& module);

}  // namespace tessera::python
