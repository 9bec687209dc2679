#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "tessera/image.h"
#include "tessera/input_image.h"
#include "tessera/plan.h"
#include "tessera/processes.h"
#include "tessera/step_cache.h"
#include "tessera/tensor.h"

namespace tessera {

/// Element type of weights and activations. int8: weights of routed experts, with a scale a column;
/// of image and video pipelines also weights of attention, MLPs and text encoders, multiplied with
/// activations quantised to int8 for each token; the rest as with bf16. int4: the same weights of a
/// pipeline with a scale for each 32 elements of a row; of language models
/// QuantiseRequest::experts only.
enum class Precision { f32, bf16, int8, int4 };
/// Source of noise: a PyTorch CPU generator's numbers, or a counter-based generator.
enum class NoiseSource { torch, philox };

/// Kinds of devices that compute.
enum class DeviceKind { cpu, cuda };
/// The device of a model. A process has one GPU: threads share it; the i-th process of a machine
/// takes GPU i.
struct DeviceOption {
  DeviceKind kind = DeviceKind::cpu;
  std::optional<int> index{};  ///< GPU index; not set: the first, or the rank's
};
/// Reads "cpu", "cuda" or "cuda:N". Throws Error(usage).
DeviceOption parse_device(const std::string& text);

/// Options of a model, for all its requests.
struct RunOptions {
  Precision precision = Precision::bf16;
  /// Quantised products of an image or video pipeline, beyond those of the precision:
  /// "attn=int8,mlp=int4,text=bf16,transformer_blocks.0.*=bf16". Keys: attn, mlp, modulation,
  /// experts, text, text.attn, text.mlp, blocks, scores, vae, and names of weights with '*'. The
  /// last match applies.
  std::string quantise_rules{};
  DeviceOption device;
  int threads = 0;  ///< the process's threads, divided among its ranks; 0: all cores
  Plan plan;
  /// Limit in bytes for weights, activations and buffers of a run; 0: nearly all memory of the
  /// machine. Above the limit, blocks of a transformer and experts of a language model are read
  /// from the file on demand.
  int64_t memory_budget = 0;
  /// Keep a transformer and packed weights of text encoders and the VAE between requests, as memory
  /// allows; otherwise they are released after their use. Models of a process share its memory;
  /// idle models release weights for others.
  bool keep_parts = false;
  /// Maps files: weights in the kernels' order (quantised folders, token embeddings) are used in
  /// the system's memory, read at their first use, and shared with other processes. Other weights
  /// are packed from the mapping. Nothing may write to the files meanwhile: a shrinking file ends
  /// the process.
  bool map_weights = false;
  std::chrono::milliseconds comm_timeout{
      60000};  ///< the limit of a wait in which no rank makes progress
  /// The processes of the plan's ranks; null: threads of this process.
  const Processes* processes = nullptr;
};

/// Decoding in tiles with blended seams: if memory demands, always, or
/// never.
enum class VaeTiling { automatic, on, off };

/// The scheduler: the folder's; rectified_flow or ddpm for models with classes; or a class of
/// diffusers over the folder's configuration for models with text.
enum class SchedulerName {
  automatic,
  rectified_flow,
  flow_euler,
  dpm_multistep,
  dpm_singlestep,
  unipc,
  deis,
  euler,
  euler_ancestral,
  heun,
  lcm,
  ddim,
  ddpm,
  cogvideox_ddim,
  cogvideox_dpm
};
/// Reads a word of the command line ("euler-ancestral") or a class name of diffusers
/// ("EulerAncestralDiscreteScheduler"). Throws Error(usage) with all words.
SchedulerName parse_scheduler(const std::string& text);

/// An adapter of a model: a safetensors file of LoRA, LoHa, LoKr or DoRA, and how much of it.
struct Lora {
  std::string file;
  double strength = 1;  ///< 0: the bits of no adapter; below 0: the other way
};
/// Reads "FILE" or "FILE:STRENGTH". Throws Error(usage).
Lora parse_lora(const std::string& text);

/// A request for images or videos. Unset fields have the model's defaults.
struct GenerateRequest {
  std::vector<std::string> classes;            ///< class numbers or names, with `count` images each
  std::vector<std::string> prompts;            ///< for models with text, likewise
  std::optional<std::string> negative_prompt;  ///< negative prompt of guidance; not set: ""
  std::string
      embeddings;  ///< a safetensors file with the text encoders' results, in place of prompts
  /// Cleans prompts as PixArt's pipelines do (clean_caption of diffusers); not set: the pipeline's
  /// default.
  std::optional<bool> clean_caption;
  int64_t text_tokens = 0;  ///< tokens of a prompt for T5; 0: the pipeline's default
  std::optional<int> steps;
  std::optional<float> guidance;  ///< 1: no guidance
  float true_guidance = 1;        ///< second branch of models with embedded guidance
  float guidance_rescale = 0;     ///< 0..1: rescales the guided prediction to the spread of the
                                  ///< conditional prediction (Lin et al. 2023); 0: off
  float cfg_normalization = 0;    ///< limits the norm of the guided prediction to this multiple of
                                  ///< the conditional prediction's (Z-Image); 0: no limit
  float cfg_truncation = 1;       ///< steps after this share of time, 1 - timestep / 1000, use no
                                  ///< guidance (Z-Image); 1: every step uses it
  float guidance_start = 0;       ///< steps before this share of time use no guidance
                                  ///< (Kynkaanniemi et al. 2024); 0: every step uses it
  int64_t width = 0, height = 0;  ///< pixels; 0: as trained
  bool binning = false;  ///< use the trained size with the nearest aspect, as resolution binning of
                         ///< diffusers; PixArt then resizes and crops
  bool fit = false;      ///< compute the next larger size that the model takes, and crop
  int64_t frames = 0;    ///< frames of a video; 0: as trained
  int count = 1;         ///< images for each class or prompt
  uint64_t seed = 0;
  /// A seed for each image, drawn as if alone; empty: all from `seed`.
  std::vector<uint64_t> seeds;
  NoiseSource noise = NoiseSource::torch;
  SchedulerName scheduler = SchedulerName::automatic;
  std::string initial_latents;  ///< safetensors file with `latents`; empty: drawn from the seed
  TensorViews initial_tensors;  ///< the same from memory, read during the call only
  std::string save_latents;     ///< safetensors file for the final `latents`; empty: none
  std::string trace;            ///< safetensors file for latents and predictions of all steps
  bool decode = true;           ///< false: stop at the latents
  VaeTiling vae_tiling = VaeTiling::automatic;
  int64_t vae_tile = 0;   ///< side of a tile in pixels; 0: the VAE's default
  int64_t vae_chunk = 0;  ///< lines of an image in a filter of the VAE at a time, for less memory
                          ///< with equal pixels; 0: all
  bool compare_steps = false;  ///< adds the similarity of experts to the report; one rank
  bool previews = false;       ///< Progress::preview will be called: a streamed transformer leaves
                               ///< memory for previews
  bool overwrite = false;      ///< lets save_latents and trace replace any file; see check_files
  /// The image for image to image (SDEdit, Meng et al. 2022); empty: start from noise.
  std::vector<InputImage> images{};
  /// Share of the steps to run, 0 to 1: the distance from the image. Not set: the family's.
  std::optional<double> strength{};
  /// White is repainted, black stays. Not set: everything is repainted.
  std::optional<InputImage> mask{};
  bool alpha_mask = false;  ///< takes transparency for the mask, in `mask` or else in the image
  bool soft_mask = false;   ///< grey stays in part; false: a mask is black below one half
  double mask_blur = 0;     ///< radius in pixels of a Gaussian over the mask
  ImageFitting image_fitting = ImageFitting::stretch;
  Margins outpaint{};         ///< without width and height, the run has the size of both together
  std::vector<Lora> loras{};  ///< added up; the order counts for DoRA
  bool merge_lora = false;    ///< into the weights of this run instead of beside their products
  std::optional<StepCache> cache{};  ///< reuses results of earlier steps; not set: none are
  /// Timesteps or sigmas of the steps, largest first, as the scheduler's set_timesteps of diffusers
  /// takes them; the number of steps follows. At most one list; empty: the scheduler's own.
  std::vector<double> timesteps{}, sigmas{};
  /// Works on the masked region alone, with so many pixels around it, at the size of the run; the
  /// result is laid over the image (`padding_mask_crop` of diffusers). Not set: the whole image.
  std::optional<int> padding_mask_crop{};
};

/// The activation of an expert: act(up x + b), or silu(gate x) * up x.
enum class ExpertActivation { swiglu, relu, gelu, gelu_tanh, silu };
/// The moe_layer for forward: a router, and experts of a single form from its folder.
struct MoeLayerForm {
  std::string gate;  ///< router weight: NAME of `gate.NAME.weight`, or a full name
  int top_k = 1;     ///< experts of a token
  ExpertActivation experts =
      ExpertActivation::swiglu;       ///< swiglu: tensors `swiglu.*`, else `mlp.*`
  bool renormalise = false;           ///< divides the weights of a token by their sum
  std::optional<int64_t> capacity{};  ///< first tokens taken by an expert; none: all
};
/// Reads "gate=NAME,top_k=K,experts=swiglu,renormalise=0,capacity=C"; the last two are optional.
/// Throws Error(usage) with the known entries.
MoeLayerForm parse_moe_layer(const std::string& text);

/// A component for forward; `model`: a language model's network, `moe_layer`: a single layer.
enum class ModelPart {
  transformer,
  model,
  moe_layer,
  vae_decode,
  vae_encode,
  text_encoder,
  text_encoder_2,
  text_encoder_3
};

/// Runs a component on named tensors.
struct ForwardRequest {
  ModelPart component = ModelPart::transformer;
  std::string inputs;      ///< safetensors file with the reference's argument names; "": `tensors`
  TensorViews tensors;     ///< the same from memory, read during the call only
  std::string outputs;     ///< safetensors file to write; "": results are only returned
  bool trace = false;      ///< also `embedding`, `block.N`, ...
  bool overwrite = false;  ///< lets `outputs` replace any file; see check_files
  std::optional<MoeLayerForm> moe{};      ///< required by moe_layer
  VaeTiling vae_tiling = VaeTiling::off;  ///< for vae.decode and vae.encode; automatic: off
  int64_t vae_tile = 0, vae_chunk = 0;    ///< as in GenerateRequest
  std::vector<Lora> loras{};              ///< adapters for a transformer or text encoder
  bool merge_lora = false;
};

/// A smaller copy of a model's folder.
struct QuantiseRequest {
  std::string output;                  ///< a new folder
  std::optional<Precision> experts{};  ///< routed experts' weights: int8 (default) or int4
  /// A language model's attention, dense and shared MLPs and head: int8; none: unchanged.
  std::optional<Precision> dense{};
  /// An image or video pipeline's products, text encoders included, as RunOptions::precision int8
  /// or int4; none: routed experts only.
  std::optional<Precision> dtype{};
  std::string rules{};  ///< as RunOptions::quantise_rules
  /// Runs whose latents calibrate the transformer's products: input channels are scaled where that
  /// lowers the error of the quantised product (SmoothQuant, Xiao et al. 2023). Empty: none.
  std::vector<GenerateRequest> calibration{};
};
/// A quantised matrix.
struct QuantisedMatrix {
  std::string name;
  int bits = 8;
  /// Root mean squared error of the elements, relative to their root mean square.
  double relative_error = 0;
};
/// The result of quantisation.
struct QuantiseResult {
  int64_t matrices = 0;                 ///< quantised matrices
  int64_t bytes_before = 0, bytes = 0;  ///< weights of the quantised part
  std::vector<QuantisedMatrix> each{};  ///< by name
};

/// The phase of a run: encoding text, loading weights, denoising, decoding latents; or writing
/// quantised weights.
enum class Phase { encode, load, denoise, decode, quantise };

/// Work of a rank since the start of denoising, before a step.
struct RankProgress {
  int rank = 0;
  double compute_seconds = 0;  ///< without waits
  double wait_seconds = 0;     ///< blocked until messages arrived
  int64_t sent_bytes = 0;      ///< to other ranks, under the plan
  /// Reads of expert results, and of keys and values, 0, 1, ... steps old.
  std::vector<int64_t> expert_ages{}, kv_ages{};
};

/// Progress of a run, passed to the callback on the caller's thread.
struct Progress {
  Phase phase = Phase::load;
  int step = 0, steps = 0;  ///< done, and total
  double seconds = 0;       ///< since the start of the phase
  /// During denoising, within the callback: decodes the latent of this step, including
  /// noise, to images (a video's frames) as in the result. Costs nothing unless called; a
  /// call reads the VAE and releases it again. Uses tiles if memory demands. Throws
  /// Error(model) for a folder without a VAE, Error(memory) without room beside the
  /// transformer, Error(cancelled) after a stop request: a callback may catch these errors
  /// and continue.
  std::function<std::vector<Image>()> preview{};
  /// With `preview`, in the same callback: the latent of this step, f32, as --save-latents writes
  /// the last. Ranks send their parts on a call.
  std::function<TensorData()> latents{};
  float timestep = 0;  ///< timestep of the finished step
  /// During denoising: the ranks of this process at the start of their last step.
  std::vector<RankProgress> ranks{};
};

/// Control and callbacks of a run, known to all ranks before the start.
struct RunControl {
  std::stop_token stop;                              ///< checked in each step
  std::function<void(const Progress&)> on_progress;  ///< may be empty
  /// Receives notes on the course of a run, a sentence each; may be empty.
  std::function<void(const std::string&)> on_note;
};

}  // namespace tessera
