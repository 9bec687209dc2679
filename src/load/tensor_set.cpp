#include "load/tensor_set.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <set>

#include "base/fail.h"
#include "base/is_there.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/stop.h"
#include "load/name_map.h"
#include "load/shard_index.h"

namespace tessera::load {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 2> kStems = {"diffusion_pytorch_model", "model"};

void check_shard(const std::string& index, const TensorFile& file,
                 const std::set<std::string>& expected) {
  for (const std::string& name : expected) {
    base::check_stop();
    require(file.has(name), ErrorCode::model,
            "{}: tensor {} should stand in {}, which lacks it: the shards do not belong together, "
            "download them again",
            index, base::printable(name), file.path());
  }
  for (const auto& [name, entry] : file.entries())
    require(
        expected.contains(name), ErrorCode::model,
        "{}: {} holds tensor {}, which the index does not place there: the shards do not belong "
        "together, download them again",
        index, file.path(), base::printable(name));
}

std::vector<std::string> missing_shards(const std::string& index) {
  std::vector<std::string> missing;
  for (const auto& [shard, names] : parse_shard_index(base::read_json(index), index))
    if (!base::is_there((fs::path(index).parent_path() / shard).string()))
      missing.push_back(base::printable(shard));
  return missing;
}

// Layouts in which a folder may hold a set of weights.
struct Candidate {
  fs::path path;
  bool index = false;
};

// Candidates of a variant, in the order of preference of a library.
std::vector<Candidate> candidates(const fs::path& folder, const std::string& variant,
                                  Library library) {
  const std::string dotted = variant.empty() ? "" : "." + variant;
  std::array<const char*, 2> stems = kStems;
  const bool diffusers = library == Library::diffusers;
  if (!diffusers) std::swap(stems[0], stems[1]);
  std::vector<Candidate> list;
  for (const char* const stem : stems) {
    const Candidate index{folder / fmt::format("{}.safetensors.index{}.json", stem, dotted), true};
    const Candidate file{folder / fmt::format("{}{}.safetensors", stem, dotted)};
    list.insert(list.end(), {diffusers ? index : file, diffusers ? file : index});
  }
  return list;
}

// True if an index has all shards; the index is not opened.
bool is_whole(const Candidate& candidate) {
  try {
    return missing_shards(candidate.path.string()).empty();
  } catch (const Error& e) {
    if (e.code() == ErrorCode::cancelled) throw;
    return false;
  }
}

std::string name_of(const Candidate& candidate) {
  return (candidate.index ? "the shards of " : "") + candidate.path.filename().string();
}

// The first complete set of a variant, if any; `lacking` gets earlier indices with missing shards.
std::optional<TensorSet> open_variant(const fs::path& folder, const std::string& variant,
                                      Library library, std::vector<std::string>& incomplete) {
  std::vector<Candidate> whole;
  for (const Candidate& candidate : candidates(folder, variant, library)) {
    if (!base::is_there(candidate.path.string())) continue;
    if (!candidate.index ||
        (whole.empty() ? missing_shards(candidate.path.string()).empty() : is_whole(candidate)))
      whole.push_back(candidate);
    else if (whole.empty())
      incomplete.push_back(candidate.path.string());
  }
  if (whole.empty()) return std::nullopt;
  const Candidate& first = whole.front();
  TensorSet set = first.index ? open_index(first.path.string())
                              : TensorSet({SafetensorsFile(first.path.string())});
  std::vector<std::string> names;
  for (size_t i = 1; i < whole.size(); ++i) names.push_back(name_of(whole[i]));
  for (const std::string& index : incomplete)
    names.push_back(name_of({index, true}) + ", of which some are missing");
  if (!names.empty())
    set.say_choice(fmt::format(
        "'{}' holds weights more than once: {} {} read, as {} does, and not {}", folder.string(),
        name_of(first), first.index ? "are" : "is",
        library == Library::diffusers ? "diffusers" : "transformers", fmt::join(names, ", or ")));
  return set;
}

// Lists the other weights of the folder as advice.
std::string advice(const fs::path& folder) {
  std::vector<std::string> names;
  bool pickle = false, gguf = false;
  std::error_code ignored;
  for (const auto& item : fs::directory_iterator(folder, ignored)) {
    const std::string extension = item.path().extension().string();
    pickle = pickle || extension == ".bin" || extension == ".pt" || extension == ".pth" ||
             extension == ".ckpt";
    gguf = gguf || extension == ".gguf";
    if (extension == ".safetensors" && names.size() < 4)
      names.push_back(base::printable(item.path().filename().string()));
  }
  std::sort(names.begin(), names.end());
  if (!names.empty())
    return fmt::format("it holds {}: rename the file, or give the variant's name",
                       fmt::join(names, ", "));
  if (pickle)
    return "it holds PyTorch pickles only, which are not read: download the safetensors files of "
           "the "
           "same model, or convert them to safetensors first (save_pretrained of diffusers and "
           "transformers writes them)";
  if (gguf)
    return "it holds GGUF files only: give one with `transformer`, `text_encoder` or `vae` beside "
           "the folder";
  return "download the weights too";
}

}  // namespace

TensorSet::TensorSet(const std::vector<TensorFile>& files) : files_(files) {
  for (size_t i = 0; i < files_.size(); ++i)
    for (const auto& [name, entry] : files_[i].entries()) {
      base::check_stop();
      const auto [at, added] = file_of_.emplace(name, i);
      require(added, ErrorCode::model, "tensor {} stands in both {} and {}; expected one of them",
              base::printable(name), files_[at->second].path(), files_[i].path());
    }
}

std::vector<std::string> TensorSet::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

const TensorFile& TensorSet::file(const std::string& name) const {
  const auto it = file_of_.find(name);
  require(it != file_of_.end(), ErrorCode::model,
          "{}: there is no tensor {} among its {}; is this the right model?",
          files_.empty() ? "no file" : files_.front().path(), base::printable(name),
          file_of_.size());
  return files_[it->second];
}

std::string TensorSet::file_name(const std::string& name) const {
  return names_ ? names_->file_name(name) : "";
}

int64_t TensorSet::bytes() const {
  int64_t total = 0;
  for (const TensorFile& file : files_)
    for (const auto& [name, entry] : file.entries()) total += entry.stored_bytes();
  return total;
}

TensorSet open_index(const std::string& index_path) {
  const auto shards = parse_shard_index(base::read_json(index_path), index_path);
  const fs::path folder = fs::path(index_path).parent_path();
  std::vector<std::string> missing = missing_shards(index_path);
  const size_t count = missing.size();
  if (count > 8) missing.resize(8);
  require(missing.empty(), ErrorCode::model,
          "{}: {} of {} shards are missing: {}{}; download them beside the index", index_path,
          count, shards.size(), fmt::join(missing, ", "), count > 8 ? ", ..." : "");
  std::vector<TensorFile> files;
  for (const auto& [shard, names] : shards) {
    files.push_back(SafetensorsFile((folder / shard).string()));
    check_shard(index_path, files.back(), names);
  }
  return TensorSet(files);
}

bool has_weights(const std::string& folder) {
  constexpr std::array<const char*, 6> kKinds = {".safetensors", ".bin",  ".pt",
                                                 ".pth",         ".ckpt", ".gguf"};
  std::error_code ignored;
  for (const auto& item : fs::directory_iterator(folder, ignored))
    if (std::count(kKinds.begin(), kKinds.end(), item.path().extension().string()) > 0) return true;
  return false;
}

int64_t announced_bytes(const std::string& folder) {
  for (const char* dotted : {"", ".bf16", ".fp16", ".fp32"})
    for (const char* stem : kStems) {
      const fs::path index =
          fs::path(folder) / (std::string(stem) + ".safetensors.index" + dotted + ".json");
      if (!base::is_there(index.string())) continue;
      const base::Json json = base::read_json(index.string());
      const base::Json::json_pointer at("/metadata/total_size");
      const bool has_size = json.is_object() && json.contains(at) && json[at].is_number_integer();
      if (has_size) return std::max<int64_t>(json[at].get<int64_t>(), 0);
    }
  return 0;
}

bool has_weights(const Component& part) { return !part.file.empty() || has_weights(part.folder); }

Library library_of(const Component& part) {
  const bool bare = part.library != "diffusers" && part.library != "transformers";
  const bool own = bare ? part.config.contains("model_type") : part.library == "transformers";
  return own ? Library::transformers : Library::diffusers;
}

TensorSet open_component(const std::string& folder, const std::string& variant, Library library) {
  require(base::is_there(folder), ErrorCode::model, "the folder '{}' does not exist", folder);
  std::error_code ignored;
  require(fs::is_directory(folder, ignored), ErrorCode::model,
          "'{}' is a file; expected a folder with weights", folder);
  std::vector<std::string> variants = {variant}, incomplete;
  if (variant.empty()) variants = {"", "bf16", "fp16", "fp32"};
  for (const std::string& v : variants)
    if (auto set = open_variant(folder, v, library, incomplete)) return *std::move(set);
  if (!incomplete.empty())  // no set is complete: report the set that lacks least
    return open_index(*std::ranges::min_element(
        incomplete, {}, [](const std::string& index) { return missing_shards(index).size(); }));
  fail(ErrorCode::model,
       "'{}' holds no {}model.safetensors, diffusion_pytorch_model.safetensors or an index of "
       "them; {}",
       folder, variant.empty() ? "" : "variant '" + variant + "' of ", advice(folder));
}

}  // namespace tessera::load
