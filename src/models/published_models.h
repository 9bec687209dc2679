#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace tessera::models {

/// Sizes of a published model, without files.
struct PublishedModel {
  std::string name;                  ///< "flux_1_dev"
  std::vector<std::string> aliases;  ///< published names in the form of model_key()
  /// Class of the pipeline (or model_type of a single model), and the configuration of each
  /// component: {"class": "FluxPipeline", "parts": {"vae": {"class": ..., "config": {...}}, ...}}.
  base::Json description;
};

/// All published models, in the order of families.
const std::vector<PublishedModel>& published_models();
/// Normalises a name for comparison: the part after the last '/', in lower case, with every run of
/// other characters as '_'; "black-forest-labs/FLUX.1-dev" -> "flux_1_dev".
std::string model_key(const std::string& name);
/// The model of a name or an alias; null: none.
const PublishedModel* published_model(const std::string& name);

}  // namespace tessera::models
