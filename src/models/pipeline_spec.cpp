#include "models/pipeline_spec.h"

#include <algorithm>

#include "base/fail.h"
#include "models/dit_parts.h"

namespace tessera::models {

using nn::Tensor;

nn::TokenLayout PipelineSpec::layout(int64_t height, int64_t width, int64_t frames) const {
  nn::TokenLayout layout = trained;
  const bool video = form == nn::LatentForm::video;
  const int64_t sizes[] = {video ? frames : 0, height, width};
  bool fits = true;
  for (size_t i = 0; i < 3; ++i) {
    if (sizes[i]) layout.size[i] = sizes[i];
    fits = fits && layout.size[i] > 0 && layout.size[i] % layout.patch[i] == 0;
  }
  require(fits || !video, ErrorCode::usage,
          "a latent of {} frames, {} x {} (width x height) does not fit patches of {} x {} x {}",
          layout.size[0], layout.size[2], layout.size[1], layout.patch[0], layout.patch[1],
          layout.patch[2]);
  require(fits, ErrorCode::usage,
          "a latent of {} x {} (width x height) does not fit patches of {}; use a multiple",
          layout.size[2], layout.size[1], layout.patch[1]);
  layout.extra = (token_multiple - layout.latent_tokens() % token_multiple) % token_multiple;
  return layout;
}

nn::Conditioning PipelineSpec::conditioning(const std::vector<int>& class_labels,
                                            bool branches) const {
  require(classes > 0, ErrorCode::usage, "this model takes text, not classes: give `prompt`");
  std::vector<int32_t> labels;
  for (int label : class_labels) {
    require(label >= 0 && label < classes, ErrorCode::usage,
            "`classes` {}: no such class; this model has classes 0 to {}", label, classes - 1);
    labels.push_back(label);
  }
  if (branches) labels.insert(labels.end(), class_labels.size(), static_cast<int32_t>(classes));
  const auto batch = static_cast<int64_t>(labels.size());
  return {{{"y", Tensor::from(std::span<const int32_t>(labels), {batch})}}};
}

std::string PipelineSpec::text_mask() const {
  for (const auto& [input, argument] : text_inputs)
    if (input.find("mask") != std::string::npos) return argument;
  return "";
}

std::vector<int64_t> PipelineSpec::prefixes(const nn::Conditioning& conditioning) const {
  if (!joint_text) return {};
  const Tensor& text = conditioning.tensors.at(text_inputs.front().second);
  if (text.rank() != 3) return {};
  std::vector<int64_t> lengths(static_cast<size_t>(text.size(0)), text.size(1));
  const auto it = conditioning.tensors.find(text_mask());
  if (it != conditioning.tensors.end() && !it->second.is_meta() &&
      it->second.elements() == text.size(0) * text.size(1)) {
    const std::vector<bool> ones = ones_of(it->second);
    for (int64_t r = 0; r < text.size(0); ++r)
      lengths[static_cast<size_t>(r)] =
          std::count(ones.begin() + r * text.size(1), ones.begin() + (r + 1) * text.size(1), true);
  }
  for (int64_t& length : lengths)
    length = (length + token_multiple - 1) / token_multiple * token_multiple;
  return lengths;
}

int64_t PipelineSpec::prefix(const nn::Conditioning& conditioning) const {
  const std::vector<int64_t> lengths = prefixes(conditioning);
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

nn::Conditioning PipelineSpec::example(int64_t batch, int64_t text_tokens) const {
  nn::Conditioning example_inputs;
  for (const Input& input : inputs) {
    std::vector<int64_t> sizes{batch};
    sizes.insert(sizes.end(), input.sizes.begin(), input.sizes.end());
    const bool text = takes_text() && input.name == text_inputs.front().second;
    for (const TextPart& part : text_parts)  // SD3 puts other texts before the adjustable one
      if (text && part.adjustable && text_tokens > 0) sizes[1] += text_tokens - part.tokens;
    example_inputs.tensors[input.name] =
        Tensor::empty(tensor::Shape(sizes), input.dtype, tensor::Device::meta);
  }
  return example_inputs;
}

std::vector<std::pair<std::string, std::string>> facts_of(
    std::initializer_list<std::pair<const char*, int64_t>> sizes) {
  std::vector<std::pair<std::string, std::string>> facts;
  for (const auto& [key, value] : sizes) facts.emplace_back(key, std::to_string(value));
  return facts;
}

nn::TokenLayout square_layout(int64_t channels, int64_t patch, int64_t side) {
  return {.channels = channels, .size = {1, side, side}, .patch = {1, patch, patch}};
}

void check_heads(const base::ConfigReader& reader, int64_t heads, int64_t head_dim) {
  require(head_dim % 2 == 0 && head_dim <= 512 && heads * head_dim <= 1 << 20, ErrorCode::model,
          "{}: {} heads of {} channels; expected an even width up to 512", reader.where(), heads,
          head_dim);
}

void check_channels(const base::ConfigReader& reader, int64_t in, int64_t out) {
  require(in <= out, ErrorCode::model,
          "{}: {} channels in and {} out: this network takes an image beside the noise, to edit or "
          "follow it, which is not supported; take the model that makes images from text alone",
          reader.where(), in, out);
}

}  // namespace tessera::models
