#include "models/published_models.h"

#include <algorithm>
#include <cctype>

#include "models/flux2_pipeline.h"
#include "models/z_image_pipeline.h"

namespace tessera::models {
namespace {

using base::Json;

// Components shared by several models, by name.
constexpr const char* kShared = R"json({
  "t5_xxl":
    {"class": "T5EncoderModel", "config": {"model_type": "t5", "d_model": 4096, "d_ff": 10240,
    "d_kv": 64, "num_heads": 64, "num_layers": 24, "vocab_size": 32128,
    "feed_forward_proj": "gated-gelu", "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128, "layer_norm_epsilon": 1e-06}},
  "mt5_xl":
    {"class": "T5EncoderModel", "config": {"model_type": "mt5", "d_model": 2048, "d_ff": 5120,
    "d_kv": 64, "num_heads": 32, "num_layers": 24, "vocab_size": 250112,
    "feed_forward_proj": "gated-gelu", "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128, "layer_norm_epsilon": 1e-06}},
  "clip_l":
    {"class": "CLIPTextModel", "config": {"hidden_size": 768, "intermediate_size": 3072,
    "num_hidden_layers": 12, "num_attention_heads": 12, "projection_dim": 768,
    "hidden_act": "quick_gelu", "model_type": "clip_text_model", "vocab_size": 49408,
    "max_position_embeddings": 77, "layer_norm_eps": 1e-05, "bos_token_id": 49406,
    "eos_token_id": 49407, "pad_token_id": 1}},
  "clip_l_projected":
    {"class": "CLIPTextModelWithProjection", "config": {"hidden_size": 768,
    "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "projection_dim": 768, "hidden_act": "quick_gelu", "model_type": "clip_text_model",
    "vocab_size": 49408, "max_position_embeddings": 77, "layer_norm_eps": 1e-05,
    "bos_token_id": 49406, "eos_token_id": 49407, "pad_token_id": 1}},
  "clip_bigg_projected":
    {"class": "CLIPTextModelWithProjection", "config": {"hidden_size": 1280,
    "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 20,
    "projection_dim": 1280, "hidden_act": "gelu", "model_type": "clip_text_model",
    "vocab_size": 49408, "max_position_embeddings": 77, "layer_norm_eps": 1e-05,
    "bos_token_id": 49406, "eos_token_id": 49407, "pad_token_id": 1}},
  "bert_large":
    {"class": "BertModel", "config": {"model_type": "bert", "hidden_size": 1024,
    "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
    "hidden_act": "gelu", "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
    "type_vocab_size": 2, "vocab_size": 47020}},
  "vae_sd":
    {"class": "AutoencoderKL", "config": {"act_fn": "silu", "block_out_channels": [128, 256,
    512, 512], "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D",
    "DownEncoderBlock2D", "DownEncoderBlock2D"], "up_block_types": ["UpDecoderBlock2D",
    "UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D"], "in_channels": 3,
    "out_channels": 3, "latent_channels": 4, "layers_per_block": 2, "norm_num_groups": 32,
    "sample_size": 1024, "scaling_factor": 0.18215, "shift_factor": null,
    "use_quant_conv": true, "use_post_quant_conv": true, "mid_block_add_attention": true}},
  "vae_sdxl":
    {"class": "AutoencoderKL", "config": {"act_fn": "silu", "block_out_channels": [128, 256,
    512, 512], "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D",
    "DownEncoderBlock2D", "DownEncoderBlock2D"], "up_block_types": ["UpDecoderBlock2D",
    "UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D"], "in_channels": 3,
    "out_channels": 3, "latent_channels": 4, "layers_per_block": 2, "norm_num_groups": 32,
    "sample_size": 1024, "scaling_factor": 0.13025, "shift_factor": null,
    "use_quant_conv": true, "use_post_quant_conv": true, "mid_block_add_attention": true}},
  "vae_sd3":
    {"class": "AutoencoderKL", "config": {"act_fn": "silu", "block_out_channels": [128, 256,
    512, 512], "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D",
    "DownEncoderBlock2D", "DownEncoderBlock2D"], "up_block_types": ["UpDecoderBlock2D",
    "UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D"], "in_channels": 3,
    "out_channels": 3, "latent_channels": 16, "layers_per_block": 2, "norm_num_groups": 32,
    "sample_size": 1024, "scaling_factor": 1.5305, "shift_factor": 0.0609,
    "use_quant_conv": false, "use_post_quant_conv": false, "mid_block_add_attention": true}},
  "vae_flux":
    {"class": "AutoencoderKL", "config": {"act_fn": "silu", "block_out_channels": [128, 256,
    512, 512], "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D",
    "DownEncoderBlock2D", "DownEncoderBlock2D"], "up_block_types": ["UpDecoderBlock2D",
    "UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D"], "in_channels": 3,
    "out_channels": 3, "latent_channels": 16, "layers_per_block": 2, "norm_num_groups": 32,
    "sample_size": 1024, "scaling_factor": 0.3611, "shift_factor": 0.1159,
    "use_quant_conv": false, "use_post_quant_conv": false, "mid_block_add_attention": true}},
  "vae_cogvideox_2b":
    {"class": "AutoencoderKLCogVideoX", "config": {"act_fn": "silu",
    "block_out_channels": [128, 256, 256, 512], "down_block_types": ["CogVideoXDownBlock3D",
    "CogVideoXDownBlock3D", "CogVideoXDownBlock3D", "CogVideoXDownBlock3D"],
    "up_block_types": ["CogVideoXUpBlock3D", "CogVideoXUpBlock3D", "CogVideoXUpBlock3D",
    "CogVideoXUpBlock3D"], "in_channels": 3, "out_channels": 3, "latent_channels": 16,
    "layers_per_block": 3, "norm_eps": 1e-06, "norm_num_groups": 32, "sample_height": 480,
    "sample_width": 720, "scaling_factor": 1.15258426, "temporal_compression_ratio": 4}},
  "vae_cogvideox_5b":
    {"class": "AutoencoderKLCogVideoX", "config": {"act_fn": "silu",
    "block_out_channels": [128, 256, 256, 512], "down_block_types": ["CogVideoXDownBlock3D",
    "CogVideoXDownBlock3D", "CogVideoXDownBlock3D", "CogVideoXDownBlock3D"],
    "up_block_types": ["CogVideoXUpBlock3D", "CogVideoXUpBlock3D", "CogVideoXUpBlock3D",
    "CogVideoXUpBlock3D"], "in_channels": 3, "out_channels": 3, "latent_channels": 16,
    "layers_per_block": 3, "norm_eps": 1e-06, "norm_num_groups": 32, "sample_height": 480,
    "sample_width": 720, "scaling_factor": 0.7, "temporal_compression_ratio": 4}},
  "dpm":
    {"class": "DPMSolverMultistepScheduler", "config": {"algorithm_type": "dpmsolver++",
    "beta_start": 0.0001, "beta_end": 0.02, "beta_schedule": "linear",
    "num_train_timesteps": 1000, "prediction_type": "epsilon", "solver_order": 2,
    "solver_type": "midpoint", "final_sigmas_type": "zero"}},
  "flow":
    {"class": "FlowMatchEulerDiscreteScheduler", "config": {"num_train_timesteps": 1000,
    "shift": 3.0}},
  "flow_shifted":
    {"class": "FlowMatchEulerDiscreteScheduler", "config": {"num_train_timesteps": 1000,
    "shift": 3.0, "use_dynamic_shifting": true, "base_shift": 0.5, "max_shift": 1.15,
    "base_image_seq_len": 256, "max_image_seq_len": 4096}},
  "flow_plain":
    {"class": "FlowMatchEulerDiscreteScheduler", "config": {"num_train_timesteps": 1000,
    "shift": 1.0}},
  "ddpm_hunyuan":
    {"class": "DDPMScheduler", "config": {"beta_start": 0.00085, "beta_end": 0.018,
    "beta_schedule": "scaled_linear", "num_train_timesteps": 1000,
    "prediction_type": "v_prediction", "steps_offset": 1, "clip_sample": false}},
  "ddim_cogvideox":
    {"class": "CogVideoXDDIMScheduler", "config": {"beta_start": 0.00085, "beta_end": 0.012,
    "beta_schedule": "scaled_linear", "num_train_timesteps": 1000,
    "prediction_type": "v_prediction", "rescale_betas_zero_snr": true,
    "set_alpha_to_one": true, "snr_shift_scale": 3.0, "timestep_spacing": "trailing",
    "clip_sample": false}},
  "dpm_cogvideox":
    {"class": "CogVideoXDPMScheduler", "config": {"beta_start": 0.00085, "beta_end": 0.012,
    "beta_schedule": "scaled_linear", "num_train_timesteps": 1000,
    "prediction_type": "v_prediction", "rescale_betas_zero_snr": true,
    "set_alpha_to_one": true, "snr_shift_scale": 1.0, "timestep_spacing": "trailing",
    "clip_sample": false}}
})json";

// Describes each component by class and configuration, or by the name of a shared component.
struct Entry {
  const char* name;
  std::vector<std::string> aliases;
  const char* description;
};

const Entry kModels[] = {
    {"dit_moe_s",
     {"dit_moe_s_8e2a"},
     R"json(
     {"class": "dit_moe", "parts": {"transformer": {"class": "dit_moe",
     "config": {"model_type": "dit_moe", "hidden_size": 384, "depth": 12, "num_heads": 6,
     "patch_size": 2, "in_channels": 4, "input_size": 32, "mlp_ratio": 4, "num_experts": 8,
     "num_experts_per_tok": 2, "n_shared_experts": 2, "norm_topk_prob": false,
     "learn_sigma": true, "num_classes": 1000, "attention": "timm", "qk_norm": false,
     "frequency_embedding_size": 256}}}}
     )json"},
    {"dit_moe_b",
     {"dit_moe_b_8e2a"},
     R"json(
     {"class": "dit_moe", "parts": {"transformer": {"class": "dit_moe",
     "config": {"model_type": "dit_moe", "hidden_size": 768, "depth": 12, "num_heads": 12,
     "patch_size": 2, "in_channels": 4, "input_size": 32, "mlp_ratio": 4, "num_experts": 8,
     "num_experts_per_tok": 2, "n_shared_experts": 2, "norm_topk_prob": false,
     "learn_sigma": true, "num_classes": 1000, "attention": "timm", "qk_norm": false,
     "frequency_embedding_size": 256}}}}
     )json"},
    {"dit_moe_l",
     {},
     R"json(
     {"class": "dit_moe", "parts": {"transformer": {"class": "dit_moe",
     "config": {"model_type": "dit_moe", "hidden_size": 1024, "depth": 24, "num_heads": 16,
     "patch_size": 2, "in_channels": 4, "input_size": 32, "mlp_ratio": 4, "num_experts": 8,
     "num_experts_per_tok": 2, "n_shared_experts": 2, "norm_topk_prob": false,
     "learn_sigma": true, "num_classes": 1000, "attention": "timm", "qk_norm": false,
     "frequency_embedding_size": 256}}}}
     )json"},
    {"dit_moe_xl",
     {"dit_moe_xl_8e2a"},
     R"json(
     {"class": "dit_moe", "parts": {"transformer": {"class": "dit_moe",
     "config": {"model_type": "dit_moe", "hidden_size": 1152, "depth": 28, "num_heads": 16,
     "patch_size": 2, "in_channels": 4, "input_size": 32, "mlp_ratio": 4, "num_experts": 8,
     "num_experts_per_tok": 2, "n_shared_experts": 2, "norm_topk_prob": false,
     "learn_sigma": true, "num_classes": 1000, "attention": "flash", "qk_norm": true,
     "frequency_embedding_size": 256}}}}
     )json"},
    {"dit_moe_g",
     {"dit_moe_g_16e2a"},
     R"json(
     {"class": "dit_moe", "parts": {"transformer": {"class": "dit_moe",
     "config": {"model_type": "dit_moe", "hidden_size": 1408, "depth": 40, "num_heads": 16,
     "patch_size": 2, "in_channels": 4, "input_size": 32, "mlp_ratio": 4, "num_experts": 16,
     "num_experts_per_tok": 2, "n_shared_experts": 2, "norm_topk_prob": false,
     "learn_sigma": true, "num_classes": 1000, "attention": "flash", "qk_norm": true,
     "frequency_embedding_size": 256}}}}
     )json"},
    {"pixart_alpha",
     {"pixart_xl_2_1024_ms"},
     R"json(
     {"class": "PixArtAlphaPipeline",
     "parts": {"transformer": {"class": "PixArtTransformer2DModel",
     "config": {"sample_size": 128, "patch_size": 2, "in_channels": 4, "out_channels": 8,
     "num_layers": 28, "num_attention_heads": 16, "attention_head_dim": 72,
     "cross_attention_dim": 1152, "caption_channels": 4096, "attention_bias": true,
     "activation_fn": "gelu-approximate", "norm_type": "ada_norm_single",
     "norm_elementwise_affine": false, "norm_eps": 1e-06, "use_additional_conditions": true}},
     "vae": "vae_sd", "text_encoder": "t5_xxl", "scheduler": "dpm"}}
     )json"},
    {"pixart_sigma",
     {"pixart_sigma_xl_2_1024_ms"},
     R"json(
     {"class": "PixArtSigmaPipeline",
     "parts": {"transformer": {"class": "PixArtTransformer2DModel",
     "config": {"sample_size": 128, "patch_size": 2, "in_channels": 4, "out_channels": 8,
     "num_layers": 28, "num_attention_heads": 16, "attention_head_dim": 72,
     "cross_attention_dim": 1152, "caption_channels": 4096, "attention_bias": true,
     "activation_fn": "gelu-approximate", "norm_type": "ada_norm_single",
     "norm_elementwise_affine": false, "norm_eps": 1e-06, "use_additional_conditions": false}},
     "vae": "vae_sdxl", "text_encoder": "t5_xxl", "scheduler": "dpm"}}
     )json"},
    {"sd3_medium",
     {"stable_diffusion_3_medium", "stable_diffusion_3_medium_diffusers"},
     R"json(
     {"class": "StableDiffusion3Pipeline",
     "parts": {"transformer": {"class": "SD3Transformer2DModel", "config": {"sample_size": 128,
     "patch_size": 2, "in_channels": 16, "out_channels": 16, "num_layers": 24,
     "num_attention_heads": 24, "attention_head_dim": 64, "joint_attention_dim": 4096,
     "caption_projection_dim": 1536, "pooled_projection_dim": 2048,
     "pos_embed_max_size": 192}}, "text_encoder": "clip_l_projected",
     "text_encoder_2": "clip_bigg_projected", "text_encoder_3": "t5_xxl", "vae": "vae_sd3",
     "scheduler": "flow"}}
     )json"},
    {"sd3_5_medium",
     {"stable_diffusion_3_5_medium"},
     R"json(
     {"class": "StableDiffusion3Pipeline",
     "parts": {"transformer": {"class": "SD3Transformer2DModel", "config": {"sample_size": 128,
     "patch_size": 2, "in_channels": 16, "out_channels": 16, "num_layers": 24,
     "num_attention_heads": 24, "attention_head_dim": 64, "joint_attention_dim": 4096,
     "caption_projection_dim": 1536, "pooled_projection_dim": 2048, "pos_embed_max_size": 384,
     "qk_norm": "rms_norm", "dual_attention_layers": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,
     12]}}, "text_encoder": "clip_l_projected", "text_encoder_2": "clip_bigg_projected",
     "text_encoder_3": "t5_xxl", "vae": "vae_sd3", "scheduler": "flow"}}
     )json"},
    {"sd3_5_large",
     {"stable_diffusion_3_5_large", "stable_diffusion_3_5_large_turbo"},
     R"json(
     {"class": "StableDiffusion3Pipeline",
     "parts": {"transformer": {"class": "SD3Transformer2DModel", "config": {"sample_size": 128,
     "patch_size": 2, "in_channels": 16, "out_channels": 16, "num_layers": 38,
     "num_attention_heads": 38, "attention_head_dim": 64, "joint_attention_dim": 4096,
     "caption_projection_dim": 2432, "pooled_projection_dim": 2048, "pos_embed_max_size": 192,
     "qk_norm": "rms_norm"}}, "text_encoder": "clip_l_projected",
     "text_encoder_2": "clip_bigg_projected", "text_encoder_3": "t5_xxl", "vae": "vae_sd3",
     "scheduler": "flow"}}
     )json"},
    {"flux_1_dev",
     {"flux1_dev", "flux_dev"},
     R"json(
     {"class": "FluxPipeline", "parts": {"transformer": {"class": "FluxTransformer2DModel",
     "config": {"patch_size": 1, "in_channels": 64, "num_layers": 19, "num_single_layers": 38,
     "attention_head_dim": 128, "num_attention_heads": 24, "joint_attention_dim": 4096,
     "pooled_projection_dim": 768, "guidance_embeds": true, "axes_dims_rope": [16, 56, 56]}},
     "vae": "vae_flux", "text_encoder": "clip_l", "text_encoder_2": "t5_xxl",
     "scheduler": "flow_shifted"}}
     )json"},
    {"flux_1_schnell",
     {"flux1_schnell", "flux_schnell"},
     R"json(
     {"class": "FluxPipeline", "parts": {"transformer": {"class": "FluxTransformer2DModel",
     "config": {"patch_size": 1, "in_channels": 64, "num_layers": 19, "num_single_layers": 38,
     "attention_head_dim": 128, "num_attention_heads": 24, "joint_attention_dim": 4096,
     "pooled_projection_dim": 768, "guidance_embeds": false, "axes_dims_rope": [16, 56, 56]}},
     "vae": "vae_flux", "text_encoder": "clip_l", "text_encoder_2": "t5_xxl",
     "scheduler": "flow_plain"}}
     )json"},
    {"hunyuan_dit",
     {"hunyuandit", "hunyuandit_v1_2", "hunyuandit_v1_2_diffusers"},
     R"json(
     {"class": "HunyuanDiTPipeline", "parts": {"transformer": {"class": "HunyuanDiT2DModel",
     "config": {"sample_size": 128, "patch_size": 2, "in_channels": 4, "num_layers": 40,
     "num_attention_heads": 16, "attention_head_dim": 88, "hidden_size": 1408,
     "mlp_ratio": 4.3637, "cross_attention_dim": 1024, "cross_attention_dim_t5": 2048,
     "pooled_projection_dim": 1024, "text_len": 77, "text_len_t5": 256, "learn_sigma": true,
     "norm_type": "layer_norm", "activation_fn": "gelu-approximate",
     "use_style_cond_and_image_meta_size": false}}, "vae": "vae_sdxl",
     "text_encoder": "bert_large", "text_encoder_2": "mt5_xl", "scheduler": "ddpm_hunyuan"}}
     )json"},
    {"cogvideox_2b",
     {},
     R"json(
     {"class": "CogVideoXPipeline",
     "parts": {"transformer": {"class": "CogVideoXTransformer3DModel",
     "config": {"num_attention_heads": 30, "attention_head_dim": 64, "num_layers": 30,
     "in_channels": 16, "out_channels": 16, "patch_size": 2, "sample_height": 60,
     "sample_width": 90, "sample_frames": 49, "text_embed_dim": 4096, "time_embed_dim": 512,
     "max_text_seq_length": 226, "temporal_compression_ratio": 4,
     "spatial_interpolation_scale": 1.875, "temporal_interpolation_scale": 1.0,
     "use_rotary_positional_embeddings": false}}, "vae": "vae_cogvideox_2b",
     "text_encoder": "t5_xxl", "scheduler": "ddim_cogvideox"}}
     )json"},
    {"cogvideox_5b",
     {},
     R"json(
     {"class": "CogVideoXPipeline",
     "parts": {"transformer": {"class": "CogVideoXTransformer3DModel",
     "config": {"num_attention_heads": 48, "attention_head_dim": 64, "num_layers": 42,
     "in_channels": 16, "out_channels": 16, "patch_size": 2, "sample_height": 60,
     "sample_width": 90, "sample_frames": 49, "text_embed_dim": 4096, "time_embed_dim": 512,
     "max_text_seq_length": 226, "temporal_compression_ratio": 4,
     "spatial_interpolation_scale": 1.875, "temporal_interpolation_scale": 1.0,
     "use_rotary_positional_embeddings": true}}, "vae": "vae_cogvideox_5b",
     "text_encoder": "t5_xxl", "scheduler": "dpm_cogvideox"}}
     )json"},
    {"cogvideox1_5_5b",
     {"cogvideox_1_5_5b"},
     R"json(
     {"class": "CogVideoXPipeline",
     "parts": {"transformer": {"class": "CogVideoXTransformer3DModel",
     "config": {"num_attention_heads": 48, "attention_head_dim": 64, "num_layers": 42,
     "in_channels": 16, "out_channels": 16, "patch_size": 2, "sample_height": 96,
     "sample_width": 170, "sample_frames": 81, "text_embed_dim": 4096, "time_embed_dim": 512,
     "max_text_seq_length": 226, "temporal_compression_ratio": 4,
     "spatial_interpolation_scale": 1.875, "temporal_interpolation_scale": 1.0,
     "use_rotary_positional_embeddings": true, "patch_size_t": 2, "patch_bias": false}},
     "vae": "vae_cogvideox_5b", "text_encoder": "t5_xxl", "scheduler": "dpm_cogvideox"}}
     )json"},
    {"llada_moe",
     {"llada_moe_7b_a1b", "llada_moe_7b_a1b_instruct", "llada_moe_7b_a1b_base"},
     R"json(
     {"class": "llada", "parts": {"model": {"class": "llada", "config": {"model_type": "llada",
     "architectures": ["LLaDAMoEModelLM"], "vocab_size": 157184, "hidden_size": 2048,
     "dense_intermediate_size": 8192, "expert_intermediate_size": 1024,
     "shared_expert_intermediate_size": null, "num_hidden_layers": 16,
     "num_attention_heads": 16, "num_key_value_heads": 16, "hidden_act": "silu",
     "max_position_embeddings": 8192, "rms_norm_eps": 1e-05, "rope_theta": 50000,
     "partial_rotary_factor": 1, "attention_bias": false, "num_experts": 64,
     "num_experts_per_tok": 8, "norm_topk_prob": false, "qk_layernorm": true,
     "moe_layer_freq": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
     "tie_word_embeddings": false, "mask_token_id": 156895, "eos_token_id": 156892,
     "pad_token_id": 156892}}}}
     )json"},
    {"llada2_mini",
     {"llada2_0_mini", "llada2_0_mini_preview", "llada2_1_mini"},
     R"json(
     {"class": "llada2_moe", "parts": {"model": {"class": "llada2_moe",
     "config": {"model_type": "llada2_moe", "architectures": ["LLaDA2MoeModelLM"],
     "vocab_size": 157184, "hidden_size": 2048, "intermediate_size": 5120,
     "num_hidden_layers": 20, "num_attention_heads": 16, "num_key_value_heads": 4,
     "head_dim": 128, "hidden_act": "silu", "max_position_embeddings": 32768,
     "rms_norm_eps": 1e-06, "rope_theta": 600000, "partial_rotary_factor": 0.5,
     "rotary_dim": 64, "use_qkv_bias": false, "use_bias": false, "use_qk_norm": true,
     "num_experts": 256, "num_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8,
     "topk_group": 4, "moe_intermediate_size": 512, "first_k_dense_replace": 1,
     "norm_topk_prob": true, "score_function": "sigmoid",
     "moe_router_enable_expert_bias": true, "routed_scaling_factor": 2.5,
     "router_dtype": "fp32", "tie_word_embeddings": false, "mask_token_id": 156895,
     "eos_token_id": 156892, "pad_token_id": 156892}}}}
     )json"},
    {"llada2_flash",
     {"llada2_0_flash", "llada2_1_flash"},
     R"json(
     {"class": "llada2_moe", "parts": {"model": {"class": "llada2_moe",
     "config": {"model_type": "llada2_moe", "architectures": ["LLaDA2MoeModelLM"],
     "vocab_size": 157184, "hidden_size": 4096, "intermediate_size": 9216,
     "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 4,
     "head_dim": 128, "hidden_act": "silu", "max_position_embeddings": 32768,
     "rms_norm_eps": 1e-06, "rope_theta": 600000, "partial_rotary_factor": 0.5,
     "rotary_dim": 64, "use_qkv_bias": false, "use_bias": false, "use_qk_norm": true,
     "num_experts": 256, "num_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8,
     "topk_group": 4, "moe_intermediate_size": 1024, "first_k_dense_replace": 1,
     "norm_topk_prob": true, "score_function": "sigmoid",
     "moe_router_enable_expert_bias": true, "routed_scaling_factor": 2.5,
     "router_dtype": "fp32", "tie_word_embeddings": false, "mask_token_id": 156895,
     "eos_token_id": 156892, "pad_token_id": 156892}}}}
     )json"},
    {"diffusion_gemma",
     {"diffusiongemma_26b_a4b_it", "diffusion_gemma_26b_a4b_it"},
     R"json(
     {"class": "diffusion_gemma", "parts": {"model": {"class": "diffusion_gemma",
     "config": {"model_type": "diffusion_gemma",
     "architectures": ["DiffusionGemmaForBlockDiffusion"], "canvas_length": 256,
     "boi_token_id": 255999, "eoi_token_id": 258882, "image_token_id": 258880,
     "eos_token_id": [1, 106], "tie_word_embeddings": true,
     "text_config": {"model_type": "diffusion_gemma_text", "attention_bias": false,
     "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0, "final_logit_softcapping": 30.0,
     "global_head_dim": 512, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
     "hidden_size": 2816, "intermediate_size": 2112, "layer_types": ["sliding_attention",
     "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
     "full_attention", "sliding_attention", "sliding_attention", "sliding_attention",
     "sliding_attention", "sliding_attention", "full_attention", "sliding_attention",
     "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
     "full_attention", "sliding_attention", "sliding_attention", "sliding_attention",
     "sliding_attention", "sliding_attention", "full_attention", "sliding_attention",
     "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
     "full_attention"], "max_position_embeddings": 262144, "moe_intermediate_size": 704,
     "num_attention_heads": 16, "num_experts": 128, "num_global_key_value_heads": 2,
     "num_hidden_layers": 30, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
     "rope_parameters": {"full_attention": {"partial_rotary_factor": 0.25,
     "rope_theta": 1000000.0, "rope_type": "proportional"},
     "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}},
     "sliding_window": 1024, "tie_word_embeddings": true, "top_k_experts": 8,
     "use_bidirectional_attention": "vision", "vocab_size": 262144}}}}}
     )json"},
};

// A published model described by its transformer only.
PublishedModel transformer_of(const std::string& name, const Json& config) {
  const Json type = config.at(config.contains("model_type") ? "model_type" : "_class_name");
  PublishedModel model{name, {}, {{"class", type}}};
  model.description["parts"]["transformer"] = {{"class", type}, {"config", config}};
  if (config.contains("is_distilled"))
    model.description["options"]["is_distilled"] = config.at("is_distilled");
  return model;
}

PublishedModel model_of(const Entry& entry, const Json& shared) {
  PublishedModel model{entry.name, entry.aliases, Json::parse(entry.description)};
  for (auto& [name, part] : model.description["parts"].items())
    if (part.is_string()) part = shared.at(part.get<std::string>());
  return model;
}

}  // namespace

const std::vector<PublishedModel>& published_models() {
  static const std::vector<PublishedModel> all = [] {
    const Json shared = Json::parse(kShared);
    std::vector<PublishedModel> models;
    for (const Entry& entry : kModels) models.push_back(model_of(entry, shared));
    for (const auto& sizes : {z_image_sizes(), flux2_sizes()})
      for (const auto& [name, config] : sizes) models.push_back(transformer_of(name, config));
    return models;
  }();
  return all;
}

std::string model_key(const std::string& name) {
  std::string key;
  for (const char c : name.substr(name.rfind('/') + 1)) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte < 128 && std::isalnum(byte) != 0;
    if (plain)
      key += static_cast<char>(std::tolower(byte));
    else if (!key.empty() && key.back() != '_')
      key += '_';
  }
  while (!key.empty() && key.back() == '_') key.pop_back();
  return key;
}

const PublishedModel* published_model(const std::string& name) {
  const std::string key = model_key(name);
  for (const PublishedModel& model : published_models())
    if (model.name == key || std::count(model.aliases.begin(), model.aliases.end(), key) > 0)
      return &model;
  return nullptr;
}

}  // namespace tessera::models
