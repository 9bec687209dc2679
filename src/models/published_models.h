#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace tessera::models {

/// A published model by its sizes, without files.
struct PublishedModel {
  std::string name;                  ///< "flux_1_dev"
  std::vector<std::string> aliases;  ///< its published names, as model_key() makes them
  /// The class of its pipeline (or the model_type of a single model), and the configuration of each
  /// component: {"class": "FluxPipeline", "parts": {"vae": {"class": ..., "config": {...}}, ...}}.
  base::Json description;
};

/// Every one, in the order of families.
const std::vector<PublishedModel>& published_models();
/// A name as it is compared: what stands behind the last '/', small letters and digits, each run of
/// others one '_'; "black-forest-labs/FLUX.1-dev" -> "flux_1_dev".
std::string model_key(const std::string& name);
/// The model of a name or an alias; null: none.
const PublishedModel* published_model(const std::string& name);

}  // namespace tessera::models
