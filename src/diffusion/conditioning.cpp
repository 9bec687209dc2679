#include "diffusion/conditioning.h"

#include <algorithm>

#include "base/fail.h"
#include "base/printable.h"
#include "load/safetensors.h"
#include "ops/elementwise.h"
#include "ops/finite.h"

namespace tessera::diffusion {

using tensor::Tensor;

Tensor finite(const Tensor& x, const std::string& name, const std::string& from) {
  require(ops::all_finite(x), ErrorCode::usage,
          "'{}': the tensor {} holds NaN or infinity; expected numbers", from,
          base::printable(name));
  return x;
}

namespace {

// Whether a request has a negative condition; an empty text is a negative condition, too.
bool says_negative(const models::PipelineSpec& spec, const GenerateRequest& request) {
  if (request.embeddings.empty()) return request.negative_prompt.has_value();
  const load::SafetensorsFile file(request.embeddings);
  return std::ranges::all_of(spec.text_inputs, [&](const auto& input) {
    const bool mask = input.first.find("mask") != std::string::npos;
    return mask || file.has("negative_" + input.first);
  });
}

}  // namespace

Branches branches_of(const models::PipelineSpec& spec, const GenerateRequest& request,
                     float guidance) {
  float scale = spec.embeds_guidance ? request.true_guidance : 1 + guidance - spec.no_guidance;
  if (spec.distilled) scale = 1;
  if (spec.embeds_guidance && scale > 1 && !says_negative(spec, request)) scale = 1;
  Branches branches{.two = scale > 1, .scale = scale > 1 ? scale : 1, .embedded = guidance};
  return branches;
}

int64_t latent_frames(const models::PipelineSpec& spec, int64_t frames) {
  const int64_t per_latent = spec.frames_per_latent;
  if (frames == 0) return 0;
  require(per_latent > 0, ErrorCode::usage, "`frames` {}: this model makes images", frames);
  require(frames > 0 && frames <= 1 << 20 && (frames - 1) % per_latent == 0, ErrorCode::usage,
          "`frames` {}: expected {}n + 1, as {} or {}", frames, per_latent,
          std::max<int64_t>((frames - 1) / per_latent, 0) * per_latent + 1,
          (std::max<int64_t>(frames - 1, 0) / per_latent + 1) * per_latent + 1);
  return (frames - 1) / per_latent + 1;
}

int64_t decoded_frames(const models::PipelineSpec& spec, int64_t latent) {
  const int64_t per_latent = spec.frames_per_latent;
  return latent % 2 == 1 ? (latent - 1) * per_latent + 1 : latent * per_latent;
}

int64_t prompt_count(const models::PipelineSpec& spec, const Embeddings& embeddings,
                     bool negative) {
  int64_t count = 0;
  for (const auto& [input, argument] : spec.text_inputs) {
    const bool mask = input.find("mask") != std::string::npos;
    for (const std::string& name : {input, "negative_" + input}) {
      if (name != input && !negative) continue;
      const auto it = embeddings.find(name);
      if (it == embeddings.end() && mask) continue;  // no padding
      require(it != embeddings.end(), ErrorCode::usage, "the embeddings lack '{}'{}", name,
              name == input ? "" : ", which guidance needs: add it, or use `guidance` 1");
      const Tensor& x = it->second;
      require(x.rank() >= 2 && x.size(0) >= 1, ErrorCode::usage,
              "'{}' is {}; expected [prompts, ...]", name, x.shape().str());
      if (name == input && count == 0) count = x.size(0);
      const bool shared = name != input && x.size(0) == 1;
      require(x.size(0) == count || shared, ErrorCode::usage, "'{}' is of {} prompts, not {}", name,
              x.size(0), count);
    }
  }
  return count;
}

namespace {

// [texts, length, ...] -> [texts, longest, ...], filled up with zeros.
Tensor filled(const Tensor& x, int64_t longest) {
  const Tensor padded = Tensor::zeros(x.shape().with(1, longest), x.dtype());
  tensor::copy_into(padded.slice(1, 0, x.size(1)), x);
  return padded;
}

// Pads texts to the longest length; the masks mark the padding.
Embeddings of_one_length(const models::PipelineSpec& spec, Embeddings embeddings, bool two) {
  const auto name_of_mask = std::ranges::find_if(spec.text_inputs, [](const auto& input) {
    return input.first.find("mask") != std::string::npos;
  });
  const std::string text = spec.text_inputs.front().first;
  if (name_of_mask == spec.text_inputs.end() || !two || embeddings.at(text).rank() < 2)
    return embeddings;
  const std::string mask = name_of_mask->first, negative = "negative_";
  const int64_t longest =
      std::max(embeddings.at(text).size(1), embeddings.at(negative + text).size(1));
  if (embeddings.at(text).size(1) == embeddings.at(negative + text).size(1)) return embeddings;
  for (const std::string& before : {std::string(), negative}) {
    Tensor &x = embeddings.at(before + text), &mask_tensor = embeddings[before + mask];
    if (!mask_tensor.defined()) {
      const std::vector<int32_t> ones(static_cast<size_t>(x.size(0) * x.size(1)), 1);
      mask_tensor = Tensor::from(std::span<const int32_t>(ones), {x.size(0), x.size(1)});
    }
    require(mask_tensor.rank() == 2 && mask_tensor.size(0) == x.size(0) &&
                mask_tensor.size(1) == x.size(1),
            ErrorCode::usage, "'{}' is {}; expected [{}, {}]", before + mask,
            mask_tensor.shape().str(), x.size(0), x.size(1));
    x = filled(x, longest);
    mask_tensor = filled(mask_tensor, longest);
  }
  return embeddings;
}

}  // namespace

nn::Conditioning text_conditioning(const models::PipelineSpec& spec, const Embeddings& given_all,
                                   int64_t count, bool two) {
  const int64_t prompts = prompt_count(spec, given_all, two);
  const Embeddings embeddings = of_one_length(spec, given_all, two);
  nn::Conditioning conditioning;
  for (const auto& [input, argument] : spec.text_inputs) {
    if (!embeddings.contains(input)) continue;
    require(!two || embeddings.contains("negative_" + input), ErrorCode::usage,
            "the embeddings lack 'negative_{}' beside '{}'", input, input);
    std::vector<Tensor> rows;
    for (int branch = 0; branch < (two ? 2 : 1); ++branch) {
      const Tensor& x = embeddings.at(branch == 0 ? input : "negative_" + input);
      for (int64_t p = 0; p < prompts; ++p) {
        const int64_t from = x.size(0) == 1 ? 0 : p;
        rows.insert(rows.end(), static_cast<size_t>(count), x.slice(0, from, from + 1));
      }
    }
    for (const Tensor& row : rows)
      require(row.shape() == rows.front().shape() && row.dtype() == rows.front().dtype(),
              ErrorCode::usage, "'{}' is {} {}, its negative {} {}", input,
              tensor::name_of(rows.front().dtype()), rows.front().shape().str(),
              tensor::name_of(row.dtype()), row.shape().str());
    conditioning.tensors[argument] = ops::concat_rows(rows);
  }
  return conditioning;
}

nn::Conditioning take_sequences(const nn::Conditioning& conditioning,
                                const std::vector<int>& sequences) {
  nn::Conditioning result;
  for (const auto& [name, x] : conditioning.tensors) {
    std::vector<Tensor> parts;
    for (int s : sequences) parts.push_back(x.slice(0, s, s + 1));
    result.tensors[name] = parts.empty() ? x.slice(0, 0, 0) : ops::concat_rows(parts);
  }
  return result;
}

}  // namespace tessera::diffusion
