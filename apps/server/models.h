#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "server/json.h"
#include "tessera/engine.h"

namespace tessera::server {

/// What a model makes.
enum class Kind { image, video, text };
const char* word_of(Kind kind);

/// What requests are checked against.
struct ModelFacts {
  std::string name;
  Kind kind = Kind::image;
  int64_t classes = 0;  ///< that a request may name; 0: it takes prompts
  std::vector<std::string> class_names;
  int64_t width = 0, height = 0, frames = 1;  ///< as trained
  std::string plan;                           ///< "": one rank
  int ranks = 1;
  bool joins = true;   ///< prompts may join a batch of answers that is at work
  bool draws = false;  ///< answers depend on the seed at temperature 0, too
};
Json json_of(const ModelFacts& facts);

/// A model that is open, under the name that requests give.
struct Served {
  ModelFacts facts;
  Model model;
  std::string folder;  ///< as it was given, absolute; "": unknown
};

/// A sentence in which folders of models became their names: where they lie is the server's own.
std::string with_name(std::string sentence, const std::string& folder, const std::string& name);

/// All models of a server.
class Models {
 public:
  /// Opens each: a folder is named by its last part. Where there are several, one that the plan is
  /// not for runs on one rank, and `said` hears of it. Throws Error(usage) for two of one name,
  /// Error(plan) for a plan that none can run, and what Model::open throws.
  Models(const std::vector<std::string>& models, const RunOptions& options,
         const std::stop_token& stop, const std::function<void(const std::string&)>& said,
         const WeightFiles& files = {});
  explicit Models(std::vector<std::unique_ptr<Served>> models) : all_(std::move(models)) {}

  /// Throws Refusal(404) that lists the names. "" is the only one, and
  /// Refusal(400) where there are several.
  const Served& find(const std::string& name) const;
  /// Null where none is called so.
  const Served* look_up(const std::string& name) const;
  const std::vector<std::unique_ptr<Served>>& all() const { return all_; }
  /// The error in a sentence without the models' folders.
  Error with_names(const Error& error) const;

 private:
  std::vector<std::unique_ptr<Served>> all_;
};

}  // namespace tessera::server
