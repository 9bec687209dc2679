#include "load/diffusers_folder.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/fail.h"
#include "base/is_there.h"
#include "base/printable.h"
#include "load/gguf_language.h"
#include "load/quantised_config.h"

namespace tessera::load {
namespace {

namespace fs = std::filesystem;
using base::Json;

constexpr const char* kConfigs[] = {"config.json", "scheduler_config.json", "tokenizer_config.json",
                                    "preprocessor_config.json"};

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::string config_in(const fs::path& folder) {
  for (const char* name : kConfigs)
    if (base::is_there((folder / name).string())) return (folder / name).string();
  return "";
}

Json read_object(const std::string& path) {
  Json json = base::read_json(path);
  require(json.is_object(), ErrorCode::model, "{}: expected a JSON object {{...}} at its top",
          path);
  return json;
}

std::string text_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

// The path is not a folder: the error describes the file and suggests an alternative.
[[noreturn]] void refuse_file(const fs::path& path) {
  const std::string extension = path.extension().string();
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  const bool described = base::is_there((path.parent_path() / "config.json").string()) ||
                         base::is_there((path.parent_path() / "model_index.json").string());
  if (extension == ".safetensors" && !described)
    fail(ErrorCode::model,
         "'{}' is a single weights file; give the model's folder in the diffusers layout "
         "(model_index.json and a folder each for scheduler, tokenizer, ...; it may lack the "
         "weights), and this as `transformer`, `text_encoder` or `vae`",
         path.string());
  if (extension == ".safetensors")
    fail(ErrorCode::model,
         "'{}' is a single weights file; give the folder that holds it and its config.json or "
         "model_index.json ('{}'?)",
         path.string(), folder);
  if (extension == ".gguf")
    fail(ErrorCode::model,
         "'{}' is a GGUF file; give the model's folder in the diffusers layout (model_index.json "
         "and a folder each for scheduler, tokenizer, ...; it may lack the weights), and this as "
         "`transformer` or `text_encoder`; alone run only language models ({})",
         path.string(), described_architectures());
  if (extension == ".ckpt" || extension == ".pt" || extension == ".pth" || extension == ".bin")
    fail(
        ErrorCode::model,
        "'{}' is a PyTorch pickle, which is not read; convert it to a folder with safetensors (for "
        "DiT-MoE: tools/convert_dit_moe.py)",
        path.string());
  fail(ErrorCode::model,
       "'{}' is a file; expected a model folder with model_index.json or config.json",
       path.string());
}

// Looks for weights in a folder without a description.
std::string lone_weights(const fs::path& root) {
  std::error_code ignored;
  for (const auto& item : fs::directory_iterator(root, ignored)) {
    const std::string extension = item.path().extension().string();
    for (const char* kind : {".safetensors", ".gguf", ".ckpt", ".pt", ".pth", ".bin"})
      if (extension == kind)
        return fmt::format("; a weights file alone, as {}, is not enough: see `transformer`",
                           base::printable(item.path().filename().string()));
  }
  return "";
}

Component read_component(const fs::path& folder, std::string name, std::string library,
                         std::string class_name) {
  Component part{std::move(name), std::move(library), std::move(class_name),
                 folder.string(), Json::object(),     {}};
  if (const std::string config = config_in(folder); !config.empty()) {
    part.config = read_object(config);
    part.quantised = take_quantisation(part.config, config);
  } else {
    // Missing keys of a config have defaults; without a config, all defaults would be wrong.
    const bool described = part.name == "scheduler" || part.name == "transformer" ||
                           part.name == "vae" || part.name.starts_with("text_encoder");
    require(!described || part.library == "tessera", ErrorCode::model,
            "'{}' holds no {}: download it too", folder.string(),
            part.name == "scheduler" ? "scheduler_config.json" : "config.json");
  }
  if (part.class_name.empty()) part.class_name = text_of(part.config, "_class_name");
  if (part.class_name.empty()) part.class_name = text_of(part.config, "model_type");
  return part;
}

// A component's name becomes a folder name, so names must not leave the model folder.
void check_name(const std::string& index, const std::string& name) {
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
  require(plain, ErrorCode::model,
          "{}: the component {} is no plain name; expected letters, digits and '_'", index,
          base::printable(name));
}

// True if a file may be for the part.
bool has_file(const WeightFiles& files, const std::string& name) {
  return (name == "transformer" && !files.transformer.empty()) ||
         (name == "vae" && !files.vae.empty()) ||
         (name.starts_with("text_encoder") && !files.text_encoders.empty());
}

// Adds [library, class]; [null, null] means that the pipeline has no such component.
void add_component(const fs::path& root, const std::string& index, const std::string& name,
                   const Json& value, const WeightFiles& files, ModelFolder& model) {
  const bool pair = value.size() == 2;
  if (pair && value[0].is_null() && value[1].is_null()) return;
  require(pair && value[0].is_string() && value[1].is_string(), ErrorCode::model,
          "{}: component {} is given as {}; expected [\"library\", \"class\"] or [null, null]",
          index, base::printable(name),
          base::printable(value.dump(-1, ' ', false, Json::error_handler_t::replace)));
  check_name(index, name);
  require(is_folder(root / name) || !base::is_there((root / name).string()), ErrorCode::model,
          "{}: '{}' is no folder; expected that of component '{}'", index, (root / name).string(),
          name);
  if (!is_folder(root / name) || (has_file(files, name) && config_in(root / name).empty())) {
    model.absent[name] = value[1].get<std::string>();
    return;
  }
  model.components.push_back(
      read_component(root / name, name, value[0].get<std::string>(), value[1].get<std::string>()));
}

ModelFolder read_pipeline(const fs::path& root, const WeightFiles& files) {
  const std::string index = (root / "model_index.json").string();
  const Json json = read_object(index);
  ModelFolder model{root.string(), FolderKind::pipeline, text_of(json, "_class_name"), {}, {},
                    Json::object()};
  require(!model.class_name.empty(), ErrorCode::model,
          "{}: there is no '_class_name'; expected the pipeline's class, as \"FluxPipeline\"",
          index);
  for (const auto& [name, value] : json.items()) {
    if (name.starts_with('_')) continue;
    if (value.is_array()) {
      add_component(root, index, name, value, files, model);
    } else {
      model.options[name] = value;
    }
  }
  require(!model.components.empty() || !model.absent.empty(), ErrorCode::model,
          "{}: it names no component", index);
  require(!model.components.empty(), ErrorCode::model,
          "{}: none of the folders that it names is there, as '{}'; download them too", index,
          model.absent.begin()->first);
  return model;
}

std::string own_name(const Component& part) {
  const std::string& name = part.class_name;
  if (name == "dit_moe" || name.find("Transformer") != std::string::npos ||
      name.find("DiT") != std::string::npos)
    return "transformer";
  return name.starts_with("Autoencoder") ? "vae" : "model";
}

ModelFolder read_single(const fs::path& root) {
  const std::string config = (root / "config.json").string();
  Component own = read_component(root, "", "", "");
  require(!own.class_name.empty(), ErrorCode::model,
          "{}: there is neither 'model_type' nor '_class_name'; expected the kind of model, as "
          "\"model_type\": \"dit_moe\"",
          config);
  own.name = own_name(own);
  ModelFolder model{root.string(), FolderKind::single, own.class_name, {}, {}, Json::object()};
  model.components.push_back(std::move(own));
  std::error_code ignored;
  for (const auto& item : fs::directory_iterator(root, ignored)) {
    const std::string name = item.path().filename().string();
    const bool part = is_folder(item.path()) && !config_in(item.path()).empty();
    if (part && !model.has(name))
      model.components.push_back(read_component(item.path(), name, "", ""));
  }
  return model;
}

// A language model of which a GGUF file holds everything.
ModelFolder read_gguf(const std::string& path, const WeightFiles& files) {
  require(files.empty(), ErrorCode::usage,
          "'{}' is a whole model; leave files in place of its weights out", path);
  Component own{"model", "", "", path, read_gguf_model(path).config, {}};
  own.class_name = text_of(own.config, "model_type");
  own.file = path;
  own.described = false;
  ModelFolder model{path, FolderKind::single, own.class_name, {}, {}, Json::object()};
  model.components.push_back(std::move(own));
  return model;
}

}  // namespace

bool ModelFolder::has(const std::string& name) const {
  return std::any_of(components.begin(), components.end(),
                     [&](const Component& part) { return part.name == name; });
}

const Component& ModelFolder::component(const std::string& name,
                                        const std::string& otherwise) const {
  std::vector<std::string> names;
  for (const Component& part : components) {
    if (part.name == name) return part;
    names.push_back(part.name);
  }
  if (const auto missing = absent.find(name); missing != absent.end())
    fail(ErrorCode::model,
         "{}/model_index.json: the folder of component '{}' ({}) is missing; expected '{}': "
         "download it too{}",
         path, name, base::printable(missing->second), (fs::path(path) / name).string(), otherwise);
  fail(ErrorCode::model, "'{}' has no component {}; it has {}{}", path, base::printable(name),
       fmt::join(names, ", "), otherwise);
}

ModelFolder open_folder(const std::string& path, const WeightFiles& files) {
  const fs::path root(path);
  std::error_code ignored;
  require(!path.empty() && fs::exists(root, ignored), ErrorCode::model,
          "the model folder '{}' does not exist; give a folder, or the name of a shipped model",
          path);
  if (root.extension() == ".gguf" && !is_folder(root) && !described_architecture(path).empty())
    return read_gguf(path, files);
  if (!is_folder(root)) refuse_file(root);
  ModelFolder model;
  if (base::is_there((root / "model_index.json").string())) {
    model = read_pipeline(root, files);
  } else {
    require(
        !base::is_there((root / "transformer/config.json").string()), ErrorCode::model,
        "'{}' holds a transformer, and no model_index.json: put the folder 'transformer' in the "
        "place of that of the pipeline that it belongs to, and give that pipeline's folder",
        path);
    require(base::is_there((root / "config.json").string()), ErrorCode::model,
            "'{}' holds neither model_index.json nor config.json; expected a model folder in the "
            "diffusers or transformers layout{}",
            path, lone_weights(root));
    model = read_single(root);
  }
  std::sort(model.components.begin(), model.components.end(),
            [](const Component& a, const Component& b) { return a.name < b.name; });
  return model;
}

}  // namespace tessera::load
