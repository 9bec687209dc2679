#include "load/adapter_names.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "load/name_map.h"
#include "load/name_tables.h"

namespace tessera::load {
namespace {

using Words = std::vector<std::string>;

std::string underscored(std::string name) {
  std::ranges::replace(name, '.', '_');
  return name;
}

bool is_number(const std::string& word) {
  return !word.empty() && std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
}

// Values of a pattern's variables (name_rules.h) that match a layer's name without ".weight".
std::optional<std::map<char, std::string>> matched(const Words& pattern, const Words& name) {
  if (pattern.size() != name.size() + 1 || pattern.back() != "*") return std::nullopt;
  std::map<char, std::string> values;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool variable =
        pattern[i].size() == 1 && std::string_view("NMLT").find(pattern[i][0]) != std::string::npos;
    if (!variable && pattern[i] != name[i]) return std::nullopt;
    if (variable && pattern[i] != "T" && !is_number(name[i])) return std::nullopt;
    if (variable) values[pattern[i][0]] = name[i];
  }
  return values;
}

std::string fill_pattern(const Words& pattern, const std::map<char, std::string>& values) {
  std::string name;
  for (size_t i = 0; i + 1 < pattern.size(); ++i) {
    const auto value = pattern[i].size() == 1 ? values.find(pattern[i][0]) : values.end();
    name += (i > 0 ? "." : "") + (value == values.end() ? pattern[i] : value->second);
  }
  return name;
}

// The largest block number after a prefix of the model's names.
int64_t last_block(const AdapterPart& part, const std::string& beginning) {
  int64_t last = -1;
  for (const AdapterLayer& layer : part.layers) {
    if (!layer.name.starts_with(beginning)) continue;
    const std::string number = words_of(layer.name.substr(beginning.size())).front();
    if (is_number(number) && number.size() < 9) last = std::max<int64_t>(last, std::stoll(number));
  }
  return last;
}

// True if a pattern's L is the last block of the model.
bool is_last(const AdapterPart& part, const Words& pattern,
             const std::map<char, std::string>& values) {
  const auto value = values.find('L');
  if (value == values.end()) return true;
  std::string beginning;
  for (const std::string& word : pattern) {
    if (word == "L") break;
    beginning += word + '.';
  }
  return last_block(part, beginning) == std::stoll(value->second);
}

}  // namespace

AdapterNames::AdapterNames(const std::vector<AdapterPart>& parts) {
  for (const AdapterPart& part : parts) {
    if (part.name != "transformer") {
      add_encoder(part, parts);
      continue;
    }
    for (const AdapterLayer& layer : part.layers) add_transformer(layer.name, {{part.name, layer}});
    add_originals(part);
  }
}

const std::vector<AdapterRows>* AdapterNames::find(const std::string& module) const {
  const auto it = known_.find(module);
  return it == known_.end() || it->second.empty() ? nullptr : &it->second;
}

// An ambiguous name stands for no layer.
void AdapterNames::add(const std::string& name, const std::vector<AdapterRows>& rows) {
  const auto [at, added] = known_.try_emplace(name, rows);
  if (!added && (at->second.empty() || at->second.front().layer.name != rows.front().layer.name))
    at->second.clear();
}

void AdapterNames::add_transformer(const std::string& layer, const std::vector<AdapterRows>& rows) {
  for (const char* before :
       {"", "transformer.", "unet.", "diffusion_model.", "model.diffusion_model.",
        "base_model.model.", "unet.base_model.model.", "transformer.base_model.model."})
    add(before + layer, rows);
  for (const char* before : {"lora_unet_", "lora_transformer_", "lycoris_"})
    add(before + underscored(layer), rows);
}

// Adds names of the original files; some of these layers are several layers of the model.
void AdapterNames::add_originals(const AdapterPart& part) {
  const NameTable* const table = name_table_of(part.type);
  if (!table) return;
  std::map<std::string, const AdapterLayer*> layers;
  for (const AdapterLayer& layer : part.layers) layers[layer.name] = &layer;
  for (const NameRule& rule : table->rules) {
    const Words first = words_of(rule.model.front());
    for (const AdapterLayer& layer : part.layers) {
      const auto values = matched(first, words_of(layer.name));
      if (!values || !is_last(part, first, *values)) continue;
      std::vector<AdapterRows> rows;
      int64_t at = 0;
      for (const char* model : rule.model) {
        const auto it = layers.find(fill_pattern(words_of(model), *values));
        if (it == layers.end()) break;
        rows.push_back({part.name, *it->second, at, rule.layout == Layout::halves_swapped});
        at += it->second->n;
      }
      if (rows.size() != rule.model.size()) continue;
      const std::string original = fill_pattern(words_of(rule.file), *values);
      if (known_.contains("diffusion_model." + original)) continue;  // an earlier rule wins
      add_transformer(original, rows);
      for (const auto& [inside, outside] : {std::pair{".img_attn.qkv", ".processor.qkv_lora1"},
                                            {".img_attn.proj", ".processor.proj_lora1"},
                                            {".txt_attn.qkv", ".processor.qkv_lora2"},
                                            {".txt_attn.proj", ".processor.proj_lora2"}})
        if (original.ends_with(inside))
          add(original.substr(0, original.size() - std::string_view(inside).size()) + outside,
              rows);
    }
  }
}

// Adds a text encoder by its position in the pipeline. FLUX has T5 as the second encoder, but some
// scripts call T5 the third.
void AdapterNames::add_encoder(const AdapterPart& part, const std::vector<AdapterPart>& parts) {
  const bool t5 = part.type.find("T5") != std::string::npos;
  const auto encoders = std::ranges::count_if(
      parts, [](const AdapterPart& other) { return other.name != "transformer"; });
  const std::string number =
      part.name == "text_encoder" ? "1" : part.name.substr(part.name.size() - 1);
  std::vector<std::string> scripts{"lora_te" + number + "_"};
  if (number == "1") scripts.emplace_back("lora_te_");
  if (t5 && encoders < 3) scripts.emplace_back("lora_te3_");
  const std::string comfy = t5 ? "t5xxl" : number == "1" ? "clip_l" : "clip_g";
  for (const AdapterLayer& layer : part.layers) {
    const std::vector<AdapterRows> rows{{part.name, layer}};
    add(part.name + "." + layer.name, rows);
    add("text_encoders." + comfy + ".transformer." + layer.name, rows);
    for (const std::string& before : scripts) add(before + underscored(layer.name), rows);
  }
}

}  // namespace tessera::load
