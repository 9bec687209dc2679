#include "load/weights_file.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "base/fail.h"
#include "base/is_there.h"
#include "base/printable.h"
#include "base/stop.h"
#include "load/described_by_shapes.h"
#include "load/file_scales.h"
#include "load/fused_experts.h"
#include "load/gguf.h"
#include "load/gguf_header.h"
#include "load/name_map.h"
#include "load/name_tables.h"
#include "load/tiny_vae.h"

namespace tessera::load {
namespace {

// Prefixes of a part's names in a complete checkpoint.
constexpr std::string_view kTransformer[] = {"model.diffusion_model.", "diffusion_model."};
constexpr std::string_view kVae[] = {"first_stage_model.", "vae."};
constexpr std::string_view kTexts = "text_encoders.";
constexpr std::string_view kFp8Mark = "scaled_fp8";  // a mark for the whole file, at any prefix

/// A tensor that identifies a text encoder, a tensor with the width of the hidden states, and the
/// config's key of the width.
struct EncoderMark {
  const char* type;
  const char* layer;
  const char* table;
  const char* width;
};
constexpr EncoderMark kEncoders[] = {
    {"T5EncoderModel", "encoder.block.0.layer.0.SelfAttention.q.weight", "shared.weight",
     "d_model"},
    {"CLIPTextModel", "text_model.encoder.layers.0.self_attn.q_proj.weight",
     "text_model.embeddings.token_embedding.weight", "hidden_size"},
    {"CLIPTextModelWithProjection", "text_model.encoder.layers.0.self_attn.q_proj.weight",
     "text_model.embeddings.token_embedding.weight", "hidden_size"},
    {"BertModel", "encoder.layer.0.attention.self.query.weight",
     "embeddings.word_embeddings.weight", "hidden_size"},
    {"Qwen3Model", "model.layers.0.self_attn.q_norm.weight", "model.embed_tokens.weight",
     "hidden_size"},
    {"Qwen3ForCausalLM", "model.layers.0.self_attn.q_norm.weight", "model.embed_tokens.weight",
     "hidden_size"}};

std::vector<std::string> names_of(const TensorFile& file) {
  std::vector<std::string> names;
  for (const auto& [name, entry] : file.entries()) names.push_back(name);
  return names;
}

// Takes the tensors under a prefix and removes the prefix from their names.
TensorFile under(const TensorFile& file, std::string_view prefix) {
  if (prefix.empty()) return file;
  std::map<std::string, TensorEntry> tensors;
  for (auto at = file.entries().lower_bound(std::string(prefix));
       at != file.entries().end() && at->first.starts_with(prefix); ++at)
    tensors.emplace(at->first.substr(prefix.size()), at->second);
  if (file.has(std::string(kFp8Mark))) tensors.emplace(kFp8Mark, file.entry(std::string(kFp8Mark)));
  return file.with(std::move(tensors));
}

bool begins(const TensorFile& file, std::string_view prefix) {
  const auto at = file.entries().lower_bound(std::string(prefix));
  return at != file.entries().end() && at->first.starts_with(prefix);
}

// The prefix of a part in a file: one of these, or none.
std::string prefix_in(const TensorFile& file, std::span<const std::string_view> prefixes) {
  for (const std::string_view prefix : prefixes)
    if (begins(file, prefix)) return std::string(prefix);
  return "";
}

// Possible prefixes of text encoders in a file: "text_encoders.t5xxl.transformer.", or none.
std::set<std::string> text_prefixes(const TensorFile& file) {
  std::set<std::string> prefixes;
  for (const auto& [name, entry] : file.entries()) {
    base::check_stop();
    if (!name.starts_with(kTexts)) continue;
    const size_t dot = name.find('.', kTexts.size());
    if (dot == std::string::npos) continue;
    std::string prefix = name.substr(0, dot + 1);
    if (name.starts_with(prefix + "transformer.")) prefix += "transformer.";
    prefixes.insert(prefix);
    if (prefixes.size() > 8) break;
  }
  if (prefixes.empty()) prefixes.insert("");
  return prefixes;
}

// Converts float8 to floats. Integers stay, because tessera may have written them.
TensorSet with_floats(const TensorSet& stored) {
  std::vector<TensorFile> files;
  bool any = false;
  for (const TensorFile& file : stored.files()) {
    const bool float8 = std::ranges::any_of(
        file.entries(), [](const auto& entry) { return entry.second.dtype.starts_with("F8_E"); });
    files.push_back(float8 ? with_scales(file) : file);
    any = any || float8;
  }
  if (!any) return stored;
  TensorSet floats(files);
  floats.say_choice(stored.choice());
  return floats;
}

void check_family(const TensorFile& file, const NameTable* table, const Component& part) {
  const std::vector<std::string> names = names_of(file);
  const auto architecture = file.metadata().find(kArchitecture);
  const auto fits = [&](const NameTable& candidate) {  // families of llama.cpp share names
    return candidate.architectures.empty() || architecture == file.metadata().end() ||
           std::ranges::find(candidate.architectures, architecture->second) !=
               candidate.architectures.end();
  };
  for (const NameTable* other : name_tables())
    require(other == table || !fits(*other) || !NameMap::marked(*other, names), ErrorCode::model,
            "{}: these are the weights of a {} model, and the folder's {} is a {}; give the file "
            "of the same model",
            file.path(), other->family, part.name, part.class_name);
  if (!table || architecture == file.metadata().end() || table->architectures.empty()) return;
  require(fits(*table), ErrorCode::model,
          "{}: general.architecture is {}, and the folder's {} is a {}; expected {}", file.path(),
          base::printable(architecture->second), part.name, part.class_name,
          fmt::join(table->architectures, " or "));
}

const EncoderMark* encoder_mark(const std::string& type) {
  const auto* const it =
      std::ranges::find(kEncoders, type, [](const EncoderMark& m) { return std::string(m.type); });
  return it == std::end(kEncoders) ? nullptr : it;
}

// True if the tensors under a prefix are a text encoder of the part's class, with `wide` also of
// the same width.
bool holds_encoder(const TensorFile& file, const std::string& prefix, const Component& part,
                   bool wide) {
  const EncoderMark* const mark = encoder_mark(part.class_name);
  if (!mark) return false;
  TensorFile encoder = under(file, prefix);
  if (const NameTable* table = name_table_of(part.class_name))
    encoder = with_model_names(encoder, NameMap(*table, names_of(encoder)));
  if (!encoder.has(mark->layer)) return false;
  const auto width = part.config.find(mark->width);
  if (!wide || width == part.config.end() || !width->is_number_integer() ||
      !encoder.has(mark->table))
    return !wide;
  const std::vector<int64_t>& sizes = encoder.entry(mark->table).sizes;
  return sizes.size() == 2 && sizes[1] == width->get<int64_t>();
}

struct Place {
  Component* part;
  std::string prefix;
};

std::vector<Place> places_of(const TensorFile& file, ModelFolder& folder, bool wide) {
  std::vector<Place> places;
  for (Component& part : folder.components)
    for (const std::string& prefix : text_prefixes(file))
      if (part.name.starts_with("text_encoder") && part.file.empty() &&
          holds_encoder(file, prefix, part, wide))
        places.push_back({&part, prefix});
  return places;
}

Component* find(ModelFolder& folder, const std::string& name) {
  const auto it = std::ranges::find(folder.components, name, &Component::name);
  return it == folder.components.end() ? nullptr : &*it;
}

std::string encoders_of(const ModelFolder& folder) {
  std::string names;
  for (const Component& part : folder.components)
    if (part.name.starts_with("text_encoder"))
      names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", part.name, part.class_name);
  for (const auto& [name, type] : folder.absent)
    if (name.starts_with("text_encoder"))
      names += fmt::format("{}{} ({}, without config.json)", names.empty() ? "" : ", ", name,
                           base::printable(type));
  return names.empty() ? "none" : names;
}

void take_text_encoder(const std::string& option, ModelFolder& folder) {
  const size_t equals = option.find('=');
  const std::string name = option.substr(0, equals == std::string::npos ? 0 : equals);
  if (name.starts_with("text_encoder") && !base::is_there(option)) {
    const std::string path = option.substr(equals + 1);
    Component* const part = find(folder, name);
    require(part != nullptr, ErrorCode::usage,
            "`text_encoder` {}: the folder describes no {}; it has {}", option, name,
            encoders_of(folder));
    const TensorFile file = open_tensor_file(path);
    part->file = path;
    for (const std::string& prefix : text_prefixes(file))
      if (part->prefix.empty() && holds_encoder(file, prefix, *part, false)) part->prefix = prefix;
    return;
  }
  const TensorFile file = open_tensor_file(option);
  std::vector<Place> places = places_of(file, folder, false);
  if (places.size() > 1) places = places_of(file, folder, true);
  require(!places.empty(), ErrorCode::usage,
          "`text_encoder` {}: it holds none of the folder's text encoders, which are: {}; if it "
          "does, say which: `text_encoder` NAME={}",
          option, encoders_of(folder), option);
  std::set<std::string> parts;
  for (const Place& place : places) parts.insert(place.part->name);
  require(parts.size() == places.size() && (places.size() == 1 || text_prefixes(file).size() > 1),
          ErrorCode::usage,
          "`text_encoder` {}: it could be for {}; say which: `text_encoder` {}={}", option,
          fmt::join(parts, " or "), *parts.begin(), option);
  for (const Place& place : places) {
    place.part->file = option;
    place.part->prefix = place.prefix;
  }
}

// Assigns a file to a part. If the folder does not describe the part, the file does.
void take_part(const std::string& path, const std::string& name,
               std::span<const std::string_view> prefixes, const char* option,
               ModelFolder& folder) {
  if (path.empty()) return;
  const TensorFile file = open_tensor_file(path);
  const std::string prefix = prefix_in(file, prefixes);
  if (Component* const part = find(folder, name)) {
    part->quantised = {};  // that is said of the folder's weights
    part->file = path;
    part->prefix = prefix;
    return;
  }
  const auto absent = folder.absent.find(name);
  require(absent != folder.absent.end(), ErrorCode::usage,
          "{} {}: '{}' is a {} without a {}; leave the option out", option, path, folder.path,
          folder.class_name, name);
  Component part{name, "diffusers", absent->second, folder.path + "/" + name, base::Json::object(),
                 {}};
  part.file = path;
  part.prefix = prefix;
  part.described = false;
  part.config = described_by_shapes(part.class_name, open_weights_file(part), path);
  folder.absent.erase(absent);
  folder.components.push_back(std::move(part));
  std::ranges::sort(folder.components, {}, &Component::name);
}

// In place of the folder's own, or beside it.
void take_vae(Component vae, ModelFolder& folder) {
  folder.absent.erase(vae.name);
  std::erase_if(folder.components,
                [&](const Component& component) { return component.name == vae.name; });
  folder.components.push_back(std::move(vae));
  std::ranges::sort(folder.components, {}, &Component::name);
}

}  // namespace

TensorSet open_weights(const Component& part) {
  if (!part.file.empty()) return open_weights_file(part);
  const auto it = part.config.find("quantization_config");
  if (it != part.config.end() && !it->is_null()) {
    std::string method;
    for (const char* key : {"quant_type", "quant_method"})
      if (it->is_object() && it->contains(key) && it->at(key).is_string())
        method = " by " + base::printable(it->at(key).get<std::string>());
    fail(ErrorCode::model,
         "{}/config.json: the weights are quantised{} ('quantization_config'), which is not read; "
         "download the folder of the same model in bf16, f16 or f32",
         part.folder, method);
  }
  TensorSet tensors =
      with_single_experts(with_floats(open_component(part.folder, "", library_of(part))));
  if (part.quantised.dense) tensors.hold_dense_in_int8(part.quantised.int8_rows);
  return tensors;
}

TensorSet open_weights_file(const Component& part) {
  if (part.class_name == kTinyVae) return TensorSet({with_tiny_names(open_tensor_file(part.file))});
  const TensorFile file = with_scales(under(open_tensor_file(part.file), part.prefix));
  const NameTable* const table = name_table_of(part.class_name);
  check_family(file, table, part);
  if (!table) return with_single_experts(TensorSet({file}));
  const auto names = std::make_shared<const NameMap>(*table, names_of(file));
  TensorSet tensors({with_model_names(file, *names)});
  if (names->applies()) tensors.use_names(names);
  return tensors;
}

void take_files(const WeightFiles& files, ModelFolder& folder) {
  if (files.empty()) return;
  const bool language = folder.kind == FolderKind::single && !folder.has("transformer");
  take_part(files.transformer, language && folder.has("model") ? "model" : "transformer",
            kTransformer, "`transformer`", folder);
  if (!files.vae.empty() && is_other_vae(files.vae))
    take_vae(open_other_vae(files.vae, "vae", "`vae`"), folder);
  else
    take_part(files.vae, "vae", kVae, "`vae`", folder);
  if (!files.preview_vae.empty())
    take_vae(open_other_vae(files.preview_vae, kPreviewVae, "`preview_vae`"), folder);
  for (const std::string& option : files.text_encoders) take_text_encoder(option, folder);
}

}  // namespace tessera::load
