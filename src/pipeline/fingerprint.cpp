#include "pipeline/fingerprint.h"

#include <filesystem>

#include "base/is_there.h"
#include "base/json.h"
#include "base/printable.h"
#include "kernels/bf16_path.h"
#include "kernels/isa.h"
#include "load/weights_file.h"
#include "runtime/tensor_view.h"
#include "tessera/request_fields.h"
#include "tessera/version.h"

namespace tessera::pipeline {
namespace {

template <class T>
std::string text_of(const T& value) {
  if constexpr (WordValue<T>)
    return word_for(value);
  else
    return fmt::format("{}", value);
}
std::string text_of(const std::vector<double>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}
template <class T>
requires(!WordValue<std::optional<T>>) std::string text_of(const std::optional<T>& value) {
  return value ? text_of(*value) : "the model's default";
}

template <class Request>
void say_fields(const Request& request, cluster::RunFingerprint& terms) {
  visit_fields(request, [&](const Field& field, const auto& value) {
    terms.say(fmt::format("`{}`", field.name), text_of(value));
  });
}

// Every text after its length, so different lists never look alike.
std::string joined(const std::vector<std::string>& texts) {
  if (texts.size() == 1) return texts.front();
  std::string result;
  for (const std::string& text : texts) result += fmt::format("{}:{} ", text.size(), text);
  return result;
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

void say_loras(const std::vector<Lora>& loras, cluster::RunFingerprint& terms) {
  for (const Lora& lora : loras) {
    terms.file("`loras`", lora.file);
    terms.say("the strength of `loras`", text_of(lora.strength));
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
  say_fields(request, terms);
  terms.say("`classes`", joined(request.classes));
  terms.say("the prompt", joined(request.prompts));
  terms.say("`negative_prompt`",
            request.negative_prompt ? "'" + *request.negative_prompt + "'" : "none");
  if (!request.embeddings.empty()) terms.file("`embeddings`", request.embeddings);
  terms.say("`seeds`", fmt::format("{}", fmt::join(request.seeds, ",")));
  if (!request.initial_latents.empty()) terms.file("`initial_latents`", request.initial_latents);
  say_tensors(request.initial_tensors, terms);
  terms.say("`save_latents`", request.save_latents.empty() ? "no" : "yes");
  terms.say("`trace`", request.trace.empty() ? "no" : "yes");
  terms.say("`latents_only`", request.decode ? "no" : "yes");
  terms.say("`vae_tiling`",
            fmt::format("{} {}", static_cast<int>(request.vae_tiling), request.vae_tile));
  terms.say("`preview`", text_of(request.previews));
  for (const InputImage& image : request.images) say_image("`image`", image, terms);
  if (request.mask) say_image("`mask`", *request.mask, terms);
  say_loras(request.loras, terms);
  const Margins& outpaint = request.outpaint;
  terms.say("`outpaint`", fmt::format("{} {} {} {}", outpaint.left, outpaint.top, outpaint.right,
                                      outpaint.bottom));
  return terms;
}

cluster::RunFingerprint fingerprint_of(const runtime::ModelState& state,
                                       const CompleteRequest& request) {
  cluster::RunFingerprint terms;
  terms.say("the command", "complete");
  say_model(state, terms);
  say_fields(request, terms);
  terms.say("the prompt", joined(request.prompts));
  std::string ids;
  for (const auto& prompt : request.prompt_ids) ids += fmt::format("{};", fmt::join(prompt, ","));
  terms.say("`prompt_ids`", ids);
  terms.say("`chat`", request.chat);
  terms.say("`stop`", joined(request.stop));
  if (!request.draws.empty()) terms.file("`draws`", request.draws);
  return terms;
}

cluster::RunFingerprint fingerprint_of(const runtime::ModelState& state,
                                       const ForwardRequest& request) {
  cluster::RunFingerprint terms;
  terms.say("the command", "forward");
  say_model(state, terms);
  const auto& [component, inputs, tensors, outputs, trace, overwrite, moe, vae_tiling, vae_tile,
               vae_chunk, loras, merge_lora] = request;
  terms.say("`merge_lora`", text_of(merge_lora));
  say_loras(loras, terms);
  terms.say("`component`", word_of(component));
  if (!inputs.empty()) terms.file("`inputs`", inputs);
  say_tensors(tensors, terms);
  terms.say("`outputs`", outputs.empty() ? "no" : "yes");
  terms.say("`overwrite`", text_of(overwrite));
  terms.say("`trace`", text_of(trace));
  if (moe)
    terms.say("`moe`", fmt::format("{} {} {} {} {}", moe->gate, moe->top_k, text_of(moe->experts),
                                   moe->renormalise, text_of(moe->capacity)));
  terms.say("`vae_tiling`", fmt::format("{} {}", static_cast<int>(vae_tiling), vae_tile));
  terms.say("`vae_chunk`", text_of(vae_chunk));
  return terms;
}

}  // namespace tessera::pipeline
