#include "models/registry.h"

#include "base/fail.h"
#include "base/printable.h"
#include "models/cogvideox_pipeline.h"
#include "models/diffusion_gemma_spec.h"
#include "models/dit_moe_pipeline.h"
#include "models/flux2_pipeline.h"
#include "models/flux_pipeline.h"
#include "models/hunyuan_dit_pipeline.h"
#include "models/llada2_spec.h"
#include "models/llada_moe_spec.h"
#include "models/pixart_pipeline.h"
#include "models/sd3_pipeline.h"
#include "models/text/bert_encoder.h"
#include "models/text/clip_encoder.h"
#include "models/text/language_encoder.h"
#include "models/text/t5_encoder.h"
#include "models/vae/autoencoder_kl.h"
#include "models/vae/autoencoder_tiny.h"
#include "models/vae/cogvideox_vae.h"
#include "models/z_image_pipeline.h"

namespace tessera::models {
namespace {

// `kind`: description of the list for the message.
template <class Families>
const auto& of_type(const Families& families, const std::string& type, const Source& source,
                    const char* kind) {
  for (const auto& family : families)
    if (type == family.type) return family;
  fail(ErrorCode::model, "{}: {} {} are not supported; supported are: {}", source.where, kind,
       base::printable(type), known_types(families));
}

template <class Encoder, auto parse, auto... how>
std::unique_ptr<TextEncoder> text_encoder(const Source& source,
                                          const std::shared_ptr<const nn::Weights>& weights,
                                          tensor::DType dtype) {
  return std::make_unique<Encoder>(parse(source.config, source.where, how...), weights, dtype);
}

// Every level but one halves the sides.
int64_t factor_of(const AutoencoderTinyConfig& c) {
  return int64_t{1} << (c.decoder_block_out_channels.size() - 1);
}
int64_t factor_of(const auto& c) { return int64_t{1} << (c.block_out_channels.size() - 1); }

template <class Decoder, class Encoder, auto parse, bool video>
VaeSpec vae(const Source& source) {
  const auto c = parse(source.config, source.where);
  VaeSpec spec;
  spec.video = video;
  spec.factor = factor_of(c);
  spec.draws = !std::is_same_v<Decoder, AutoencoderTiny>;
  spec.tiling = [c](int64_t pixels) { return tiling_of(c, pixels); };
  spec.decoder = [c](const nn::Weights& weights, tensor::DType dtype) {
    return std::make_unique<Decoder>(c, weights, dtype);
  };
  spec.encoder = [c](const nn::Weights& weights, tensor::DType dtype) {
    return std::make_unique<Encoder>(c, weights, dtype);
  };
  return spec;
}

}  // namespace

const std::vector<PipelineFamily>& pipelines() {
  static const std::vector<PipelineFamily> all{
      {"dit_moe", dit_moe_pipeline},
      {"DiTMoE", dit_moe_pipeline},
      {"PixArtTransformer2DModel", pixart_pipeline},
      {"Transformer2DModel", pixart_pipeline},  // PixArt's name before diffusers 0.29
      {"SD3Transformer2DModel", sd3_pipeline},
      {"FluxTransformer2DModel", flux_pipeline},
      {"Flux2Transformer2DModel", flux2_pipeline},
      {"HunyuanDiT2DModel", hunyuan_dit_pipeline},
      {"CogVideoXTransformer3DModel", cogvideox_pipeline},
      {"ZImageTransformer2DModel", z_image_pipeline},
  };
  return all;
}

const std::vector<VaeFamily>& vaes() {
  static const std::vector<VaeFamily> all{
      {"AutoencoderKL",
       vae<AutoencoderKL, AutoencoderKLEncoder, parse_autoencoder_kl_config, false>},
      {"AutoencoderKLFlux2",
       vae<AutoencoderKL, AutoencoderKLEncoder, parse_flux2_vae_config, false>},
      {"AutoencoderTiny",
       vae<AutoencoderTiny, AutoencoderTinyEncoder, parse_autoencoder_tiny_config, false>},
      {"AutoencoderKLCogVideoX",
       vae<CogVideoXVae, CogVideoXVaeEncoder, parse_cogvideox_vae_config, true>},
  };
  return all;
}

const std::vector<TextEncoderFamily>& text_encoders() {
  static const std::vector<TextEncoderFamily> all{
      {"T5EncoderModel", text_encoder<T5Encoder, parse_t5_config>},
      {"CLIPTextModel", text_encoder<ClipEncoder, parse_clip_config, false>},
      {"CLIPTextModelWithProjection", text_encoder<ClipEncoder, parse_clip_config, true>},
      {"BertModel", text_encoder<BertEncoder, parse_bert_config>},
      {"Qwen3Model", text_encoder<LanguageEncoder, parse_qwen3_config>},
      {"Qwen3ForCausalLM", text_encoder<LanguageEncoder, parse_qwen3_config>},
      {"Qwen3VLForConditionalGeneration", text_encoder<LanguageEncoder, parse_qwen3_config>},
      {"Qwen2_5_VLForConditionalGeneration", text_encoder<LanguageEncoder, parse_qwen25_config>},
  };
  return all;
}

const std::vector<LanguageFamily>& language_models() {
  static const std::vector<LanguageFamily> all{
      {"LLaDAMoEModelLM", llada_moe_spec},
      {"LLaDA2MoeModelLM", llada2_spec},
      {"llada2_moe", llada2_spec},
      {"DiffusionGemmaForBlockDiffusion", diffusion_gemma_spec},
      {"diffusion_gemma", diffusion_gemma_spec},
  };
  return all;
}

PipelineSpec pipeline_of(const std::string& type, const Source& source) {
  return of_type(pipelines(), type, source, "models of type").make(source);
}

VaeSpec vae_of(const std::string& type, const Source& source) {
  return of_type(vaes(), type, source, "VAEs of type").make(source);
}

std::unique_ptr<TextEncoder> text_encoder_of(const std::string& type, const Source& source,
                                             const std::shared_ptr<const nn::Weights>& weights,
                                             tensor::DType dtype) {
  return of_type(text_encoders(), type, source, "text encoders of type")
      .make(source, weights, dtype);
}

TokenSpec language_model_of(const Source& source) {
  const base::Json& config = source.config;
  std::string type;
  if (const auto list = config.find("architectures");
      list != config.end() && list->is_array() && !list->empty() && (*list)[0].is_string())
    type = (*list)[0].get<std::string>();
  else if (const auto model = config.find("model_type");
           model != config.end() && model->is_string())
    type = model->get<std::string>();
  return of_type(language_models(), type, source, "language models of type").make(source);
}

}  // namespace tessera::models
