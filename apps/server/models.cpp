#include "server/models.h"

#include <filesystem>
#include <optional>

#include "server/option_names.h"
#include "server/refusal.h"

namespace tessera::server {
namespace {

ModelFacts facts_of(const Model& model, const std::string& name, const RunOptions& options,
                    const std::stop_token& stop) {
  const Inspection inspection = model.inspect({}, stop);
  ModelFacts facts;
  facts.name = name;
  facts.kind = inspection.answer_tokens > 0 ? Kind::text
               : model.makes_videos()       ? Kind::video
                                            : Kind::image;
  facts.classes = model.classes();
  facts.class_names = inspection.class_names;
  facts.width = inspection.width;
  facts.height = inspection.height;
  facts.draws = inspection.draws;
  facts.plan = to_string(options.plan);
  facts.ranks = options.plan.ranks();
  facts.joins = facts.ranks == 1 || options.plan.moe != MoeForm::fused;
  return facts;
}

std::string name_of(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return std::filesystem::path(path).filename().string();
}

// Makes a path absolute, so errors show a path; names of shipped models stay.
std::string whole(const std::string& source) {
  namespace fs = std::filesystem;
  std::error_code none;
  if (source.find('/') == std::string::npos || !fs::is_directory(source, none)) return source;
  const fs::path path = fs::absolute(source, none);
  return none ? source : path.lexically_normal().string();
}

}  // namespace

const char* word_of(Kind kind) {
  return kind == Kind::image ? "image" : kind == Kind::video ? "video" : "text";
}

Json json_of(const ModelFacts& facts) {
  Json defaults = Json::object();
  if (facts.width > 0) defaults = {{"width", facts.width}, {"height", facts.height}};
  return {{"name", facts.name},
          {"kind", word_of(facts.kind)},
          {"prompts", facts.classes == 0},
          {"classes", facts.classes},
          {"class_names", facts.class_names},
          {"plan", facts.plan},
          {"ranks", facts.ranks},
          {"defaults", defaults}};
}

Models::Models(const std::vector<std::string>& models, const RunOptions& options,
               const std::stop_token& stop, const std::function<void(const std::string&)>& note,
               const WeightFiles& files) {
  std::optional<Error> misfit;
  size_t opened_count = 0;
  for (const std::string& source : models) {
    const std::string name = name_of(source);
    for (const auto& other : all_)
      if (other->facts.name == name)
        throw Error(ErrorCode::usage, "two models are called '" + name +
                                          "': requests could not tell them apart; rename a folder");
    const auto add = [&](const RunOptions& run) {
      Model model = Model::open(whole(source), run, stop, files);
      ModelFacts facts = facts_of(model, name, run, stop);
      all_.push_back(
          std::make_unique<Served>(Served{std::move(facts), std::move(model), whole(source)}));
    };
    try {
      add(options);
      ++opened_count;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::plan || models.size() == 1 || options.processes) throw;
      misfit = error;
      RunOptions single_rank = options;
      single_rank.plan = {};
      add(single_rank);
      note(name + " runs on one rank: " + in_options(error.what()));
    }
  }
  if (misfit && opened_count == 0) throw Error(*misfit);
}

std::string with_name(std::string sentence, const std::string& folder, const std::string& name) {
  for (size_t at = 0; !folder.empty() && (at = sentence.find(folder, at)) != std::string::npos;
       at += name.size())
    sentence.replace(at, folder.size(), name);
  const std::string end = "/" + name;
  for (size_t at = 0; (at = sentence.find(end, at)) != std::string::npos;) {
    const size_t before = at == 0 ? std::string::npos : sentence.find_last_of(" '\"(", at - 1);
    const size_t begin = before == std::string::npos ? 0 : before + 1;
    sentence.erase(begin, at + 1 - begin);
    at = begin + name.size();
  }
  return sentence;
}

Error Models::with_names(const Error& error) const {
  std::string message = error.what();
  for (const auto& served : all_)
    message = with_name(std::move(message), served->folder, served->facts.name);
  return {error.code(), message};
}

const Served* Models::look_up(const std::string& name) const {
  for (const auto& served : all_)
    if (served->facts.name == name) return served.get();
  return nullptr;
}

const Served& Models::find(const std::string& name) const {
  if (const Served* served = look_up(name)) return *served;
  if (name.empty() && all_.size() == 1) return *all_[0];
  std::string names;
  for (const auto& entry : all_) names += (names.empty() ? "" : ", ") + entry->facts.name;
  if (name.empty()) throw wrong("model", "model is missing: name one of " + names);
  throw Refusal(404, "not_found",
                "there is no model '" + name.substr(0, 100) + "'; there is " + names, "model");
}

}  // namespace tessera::server
