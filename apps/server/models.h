#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "server/json.h"
#include "tessera/engine.h"

namespace tessera::server {

/// Output of a model.
enum class Kind { image, video, text };
const char* word_of(Kind kind);

/// Facts about a model for checking requests.
struct ModelFacts {
  std::string name;
  Kind kind = Kind::image;
  int64_t classes = 0;  ///< number of class labels; 0: the model takes prompts
  std::vector<std::string> class_names;
  int64_t width = 0, height = 0, frames = 1;  ///< trained size
  std::string plan;                           ///< "": single rank
  int ranks = 1;
  bool joins = true;   ///< prompts may join a running batch
  bool draws = false;  ///< answers depend on the seed even at temperature 0
};
Json json_of(const ModelFacts& facts);

/// An open model under its public name.
struct Served {
  ModelFacts facts;
  Model model;
  std::string folder;  ///< given folder, absolute; "": unknown
};

/// Replaces folders of models by model names, because paths of the server are private.
std::string with_name(std::string sentence, const std::string& folder, const std::string& name);

/// All models of a server.
class Models {
 public:
  /// Opens all models; names are the last parts of the folders. If there are several, a model that
  /// cannot run the plan runs on a single rank, and `note` gets the reason. Throws Error(usage) for
  /// equal names, Error(plan) if no model can run the plan, and the errors of Model::open.
  Models(const std::vector<std::string>& models, const RunOptions& options,
         const std::stop_token& stop, const std::function<void(const std::string&)>& note,
         const WeightFiles& files = {});
  explicit Models(std::vector<std::unique_ptr<Served>> models) : all_(std::move(models)) {}

  /// Throws Refusal(404) with the list of names. "" means the only model, and Refusal(400) if there
  /// are several.
  const Served& find(const std::string& name) const;
  /// Null if unknown.
  const Served* look_up(const std::string& name) const;
  const std::vector<std::unique_ptr<Served>>& all() const { return all_; }
  /// Copies the error with model names in place of folders.
  Error with_names(const Error& error) const;

 private:
  std::vector<std::unique_ptr<Served>> all_;
};

}  // namespace tessera::server
