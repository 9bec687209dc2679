#include "pipeline/fingerprint.h"

#include <filesystem>

#include "base/is_there.h"
#include "base/json.h"
#include "base/printable.h"
#include "kernels/bf16_path.h"
#include "kernels/isa.h"
#include "load/weights_file.h"
#include "runtime/tensor_view.h"
#include "tessera/version.h"
#include "tessera/words.h"

namespace tessera::pipeline {
namespace {

template <class T>
std::string shown(const T& value) {
  if constexpr (std::is_enum_v<T>)
    return std::to_string(static_cast<int>(value));
  else
    return fmt::format("{}", value);
}
template <class T>
std::string shown(const std::optional<T>& value) {
  return value ? shown(*value) : "the model's default";
}

// Every text after its length, so different lists never look alike.
std::string joined(const std::vector<std::string>& texts) {
  if (texts.size() == 1) return texts.front();
  std::string all;
  for (const std::string& text : texts) all += fmt::format("{}:{} ", text.size(), text);
  return all;
}

void say_model(const runtime::ModelState& state, cluster::RunFingerprint& terms) {
  terms.say("the version", kVersion);
  terms.say("the instruction set", kernels::name_of(kernels::active_isa()));
  terms.say(cluster::RunFingerprint::kUnit, kernels::name_of(kernels::active_bf16_path()));
  terms.say("`plan`", to_string(state.options.plan));
  terms.say("`dtype`", word_of(state.options.precision));
  terms.say("`quantise_rules`", state.options.quantise_rules);
  terms.say("`device`", name_of(state.place.device));
  for (const load::Component& part : state.folder.components) {
    terms.say("the configuration of " + part.name, part.config.dump());
    std::vector<std::string> paths;
    try {
      const load::TensorSet tensors =
          part.file.empty() ? load::open_component(part.folder, "", load::library_of(part))
                            : load::open_weights_file(part);
      for (const load::TensorFile& file : tensors.files()) paths.push_back(file.path());
    } catch (const Error& e) {  // a tokenizer, a scheduler; missing parts are found later
      if (e.code() == ErrorCode::cancelled) throw;
      terms.say("the weights of " + part.name, "none");
    }
    for (const std::string& path : paths)
      terms.file(fmt::format("the weights of {} ({})", part.name,
                             std::filesystem::path(path).filename().string()),
                 path);
    for (const char* name :
         {"tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "spiece.model",
          "vocab.txt", "chat_template.jinja", "generation_config.json"}) {
      const std::string path = part.folder + "/" + name;
      if (base::is_there(path)) terms.file(fmt::format("{} of {}", name, part.name), path);
    }
  }
}

void say_tensors(const TensorViews& tensors, cluster::RunFingerprint& terms) {
  for (const auto& [name, view] : tensors) {
    const tensor::Tensor x = runtime::tensor_of(name, view);
    terms.say(fmt::format("the tensor {} {} {}", base::printable(name), tensor::name_of(x.dtype()),
                          x.shape().str()),
              {static_cast<const char*>(x.raw()), static_cast<size_t>(x.bytes())});
  }
}

void say_loras(const std::vector<Lora>& loras, bool merged, cluster::RunFingerprint& terms) {
  terms.say("`merge_lora`", shown(merged));
  for (const Lora& lora : loras) {
    terms.file("`loras`", lora.file);
    terms.say("the strength of `loras`", shown(lora.strength));
  }
}

void say_image(const char* option, const InputImage& image, cluster::RunFingerprint& terms) {
  if (!image.file.empty()) return terms.file(option, image.file);
  const auto* const pixels = reinterpret_cast<const char*>(image.pixels.rgb.data());
  terms.say(fmt::format("{} of {} x {}", option, image.pixels.width, image.pixels.height),
            image.bytes.empty() ? std::string_view(pixels, image.pixels.rgb.size())
                                : std::string_view(image.bytes));
}

}  // namespace

cluster::RunFingerprint fingerprint_of(const runtime::ModelState& state,
                                       const GenerateRequest& request) {
  cluster::RunFingerprint terms;
  terms.say("the command", "generate");
  say_model(state, terms);
  // Names every member, so a new member cannot be forgotten here.
  const auto& [classes, prompts, negative_prompt, embeddings, clean_caption, text_tokens, steps,
               guidance, true_guidance, guidance_rescale, cfg_normalization, cfg_truncation, width,
               height, binning, fit, frames, count, seed, seeds, noise, scheduler, initial_latents,
               initial_tensors, save_latents, trace, decode, vae_tiling, vae_tile, vae_chunk,
               compare_steps, previews, overwrite, images, strength, mask, alpha_mask, soft_mask,
               mask_blur, image_fitting, outpaint, loras, merge_lora, cache, timesteps, sigmas,
               padding_mask_crop] = request;
  terms.say("`classes`", joined(classes));
  terms.say("the prompt", joined(prompts));
  terms.say("`negative_prompt`", negative_prompt ? "'" + *negative_prompt + "'" : "none");
  if (!embeddings.empty()) terms.file("`embeddings`", embeddings);
  terms.say("`clean_caption`", clean_caption ? shown(*clean_caption) : "");
  terms.say("`text_tokens`", shown(text_tokens));
  terms.say("`steps`", shown(steps));
  terms.say("`timesteps`", fmt::format("{}", fmt::join(timesteps, ",")));
  terms.say("`sigmas`", fmt::format("{}", fmt::join(sigmas, ",")));
  terms.say("`guidance`", shown(guidance));
  terms.say("`true_guidance`", shown(true_guidance));
  terms.say("`guidance_rescale`", shown(guidance_rescale));
  terms.say("`cfg_normalization`", shown(cfg_normalization));
  terms.say("`cfg_truncation`", shown(cfg_truncation));
  terms.say("`width`", shown(width));
  terms.say("`height`", shown(height));
  terms.say("`binning`", shown(binning));
  terms.say("`fit`", shown(fit));
  terms.say("`frames`", shown(frames));
  terms.say("`count`", shown(count));
  terms.say("`seed`", seeds.empty() ? shown(seed) : fmt::format("{}", fmt::join(seeds, ",")));
  terms.say("`noise`", word_of(noise));
  terms.say("`scheduler`", word_of(scheduler));
  if (!initial_latents.empty()) terms.file("`initial_latents`", initial_latents);
  say_tensors(initial_tensors, terms);
  terms.say("`save_latents`", save_latents.empty() ? "no" : "yes");
  terms.say("`trace`", trace.empty() ? "no" : "yes");
  terms.say("`overwrite`", shown(overwrite));
  terms.say("`latents_only`", decode ? "no" : "yes");
  terms.say("`vae_tiling`", fmt::format("{} {}", shown(vae_tiling), vae_tile));
  terms.say("`vae_chunk`", shown(vae_chunk));
  terms.say("`compare_steps`", shown(compare_steps));
  terms.say("`preview`", shown(previews));
  for (const InputImage& image : images) say_image("`image`", image, terms);
  if (mask) say_image("`mask`", *mask, terms);
  terms.say("`strength`", shown(strength));
  say_loras(loras, merge_lora, terms);
  terms.say("the mask", fmt::format("{} {} {}", alpha_mask, soft_mask, mask_blur));
  terms.say("`padding_mask_crop`", shown(padding_mask_crop));
  terms.say("`image_fit`", word_of(image_fitting));
  terms.say("`outpaint`", fmt::format("{} {} {} {}", outpaint.left, outpaint.top, outpaint.right,
                                      outpaint.bottom));
  terms.say("`cache`", cache ? to_string(*cache) : "none");
  return terms;
}

cluster::RunFingerprint fingerprint_of(const runtime::ModelState& state,
                                       const CompleteRequest& request) {
  cluster::RunFingerprint terms;
  terms.say("the command", "complete");
  say_model(state, terms);
  const auto& [prompts, prompt_ids, chat, raw, max_tokens, block, decode, as_published, steps,
               cache, stop_at_eos, select, select_refresh, select_prefill, temperature, top_k,
               top_p, repetition_penalty, seed, n, logprobs, stop, draws] = request;
  terms.say("the prompt", joined(prompts));
  std::string ids;
  for (const auto& prompt : prompt_ids) ids += fmt::format("{};", fmt::join(prompt, ","));
  terms.say("`prompt_ids`", ids);
  terms.say("`chat`", chat);
  terms.say("`raw`", shown(raw));
  terms.say("`max_tokens`", shown(max_tokens));
  terms.say("`block`", shown(block));
  terms.say("`decode`", decode);
  terms.say("`as_published`", shown(as_published));
  terms.say("`steps`", shown(steps));
  terms.say("`cache`", fmt::format("{}:{},{},{}", word_of(cache.kind), cache.before, cache.after,
                                   cache.warmup));
  terms.say("`stop_at_eos`", word_of(stop_at_eos));
  terms.say("`select`", select);
  terms.say("`select_refresh`", shown(select_refresh));
  terms.say("`select_prefill`", shown(select_prefill));
  terms.say("`temperature`", shown(temperature));
  terms.say("`top_k`", shown(top_k));
  terms.say("`top_p`", shown(top_p));
  terms.say("`repetition_penalty`", shown(repetition_penalty));
  terms.say("`seed`", shown(seed));
  terms.say("`n`", shown(n));
  terms.say("`logprobs`", logprobs ? shown(*logprobs) : "none");
  terms.say("`stop`", joined(stop));
  if (!draws.empty()) terms.file("`draws`", draws);
  return terms;
}

cluster::RunFingerprint fingerprint_of(const runtime::ModelState& state,
                                       const ForwardRequest& request) {
  cluster::RunFingerprint terms;
  terms.say("the command", "forward");
  say_model(state, terms);
  const auto& [component, inputs, tensors, outputs, trace, overwrite, moe, vae_tiling, vae_tile,
               vae_chunk, loras, merge_lora] = request;
  say_loras(loras, merge_lora, terms);
  terms.say("`component`", word_of(component));
  if (!inputs.empty()) terms.file("`inputs`", inputs);
  say_tensors(tensors, terms);
  terms.say("`outputs`", outputs.empty() ? "no" : "yes");
  terms.say("`overwrite`", shown(overwrite));
  terms.say("`trace`", shown(trace));
  if (moe)
    terms.say("`moe`", fmt::format("{} {} {} {} {}", moe->gate, moe->top_k, shown(moe->experts),
                                   moe->renormalise, shown(moe->capacity)));
  terms.say("`vae_tiling`", fmt::format("{} {}", shown(vae_tiling), vae_tile));
  terms.say("`vae_chunk`", shown(vae_chunk));
  return terms;
}

}  // namespace tessera::pipeline
