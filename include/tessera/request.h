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
#include "tessera/plan.h"
#include "tessera/processes.h"
#include "tessera/tensor.h"

namespace tessera {

/// Element type of weights and activations in a run. int8: weights of routed experts, with a scale
/// a column; all else as with bf16. int4: of QuantiseRequest::experts alone, with a scale for each
/// 32 elements of a row.
enum class Precision { f32, bf16, int8, int4 };
/// Where noise comes from: the numbers of a PyTorch CPU generator, or a counter-based one.
enum class NoiseSource { torch, philox };

/// Kinds of devices that compute.
enum class DeviceKind { cpu, cuda };
/// Where models compute. One GPU a process: ranks that are threads share it; of ranks that are
/// processes, the i-th of a machine takes its GPU i.
struct DeviceOption {
  DeviceKind kind = DeviceKind::cpu;
  std::optional<int> index{};  ///< of the GPU; not set: the first, or that of the rank
};
/// Reads "cpu", "cuda" or "cuda:N". Throws Error(usage).
DeviceOption parse_device(const std::string& text);

/// How a model runs, whatever it is asked.
struct RunOptions {
  Precision precision = Precision::bf16;
  DeviceOption device;
  int threads = 0;  ///< of the process, divided over its ranks; 0: all cores
  Plan plan;
  /// Bytes that weights, activations and buffers of a run may take; 0: nearly all that the machine
  /// has. Blocks of a transformer of images that does not fit are streamed from the file, and so
  /// are experts of a language model.
  int64_t memory_budget = 0;
  /// Keep a transformer, and packed weights of text encoders and the VAE, as far as they fit beside
  /// all that a request does; else they are released before images are decoded, and when they were
  /// used. Models of a process that do so share its memory; idle ones let go where others need it.
  bool keep_parts = false;
  /// Files are mapped: weights that they hold as kernels read them (a quantised folder's, token
  /// embeddings) are used where they lie in the system's memory for these files, read when they are
  /// first used and there for the next process; others are packed from there without another copy.
  /// Nobody may write to the files meanwhile: one that shrinks ends the process.
  bool map_weights = false;
  std::chrono::milliseconds comm_timeout{
      60000};  ///< a wait lasts no longer while the peer stands still
  /// The processes that are the plan's ranks; null: threads of this process are.
  const Processes* processes = nullptr;
};

/// Whether latents are decoded in tiles whose seams are blended: where memory asks for it, always,
/// or never.
enum class VaeTiling { automatic, on, off };

/// How a step goes from a prediction to the next latent: as the folder says; of models of classes
/// rectified_flow or ddpm; of those of text a class of diffusers over the folder's configuration.
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
/// Reads a word of the command line ("euler-ancestral") or the name of a class of diffusers
/// ("EulerAncestralDiscreteScheduler"). Throws Error(usage) that lists the words.
SchedulerName parse_scheduler(const std::string& text);

/// One request for images or videos. What is not set has the model's default.
struct GenerateRequest {
  std::vector<std::string> classes;  ///< class numbers or names; one image each per `count`
  std::vector<std::string> prompts;  ///< of models that take text, likewise
  std::optional<std::string> negative_prompt;  ///< what guidance leads away from; not set: ""
  std::string
      embeddings;  ///< safetensors file with what the text encoders give, instead of prompts
  /// Prompts are cleaned as PixArt's pipelines do it (clean_caption of diffusers); not set: where
  /// the model's pipeline does.
  std::optional<bool> clean_caption;
  int64_t text_tokens = 0;  ///< that a T5 reads of a prompt; 0: as the reference pipeline
  std::optional<int> steps;
  std::optional<float> guidance;  ///< 1: no guidance
  float true_guidance = 1;  ///< a second branch of models that embed guidance, if negative_prompt
  float guidance_rescale = 0;     ///< 0..1: how far the spread of a guided prediction goes back to
                                  ///< that of the conditional one (Lin et al. 2023); 0: not at all
  int64_t width = 0, height = 0;  ///< pixels; 0: as trained
  bool binning = false;  ///< compute the trained size whose aspect is nearest, as the reference
                         ///< pipelines' resolution binning; PixArt then resizes and crops
  int64_t frames = 0;    ///< of a video; 0: as trained
  int count = 1;         ///< images for each class or prompt
  uint64_t seed = 0;
  /// One for each image, whose noise is then drawn as if it were alone; empty: all from `seed`.
  std::vector<uint64_t> seeds;
  NoiseSource noise = NoiseSource::torch;
  SchedulerName scheduler = SchedulerName::automatic;
  std::string initial_latents;  ///< safetensors file with `latents`; empty: drawn from the seed
  TensorViews initial_tensors;  ///< the same from memory, which is read during the call alone
  std::string save_latents;     ///< safetensors file for the final `latents`; empty: none
  std::string trace;            ///< safetensors file for latents and predictions of every step
  bool decode = true;           ///< false: stop at the latents
  VaeTiling vae_tiling = VaeTiling::automatic;
  int64_t vae_tile = 0;   ///< pixels of a tile's side; 0: as the VAE's configuration says
  int64_t vae_chunk = 0;  ///< lines of an image that a filter of the VAE works on at a time, to
                          ///< take less memory for the same pixels; 0: on all of them
  bool compare_steps = false;  ///< the report says how much experts repeat themselves; one rank
  bool previews = false;       ///< Progress::preview will be asked: a transformer that is streamed
                               ///< leaves room for it
  bool overwrite = false;      ///< save_latents and trace may replace any file; see check_files
};

/// What an expert has between its two products: act(up x + b), or silu(gate x) * up x.
enum class ExpertActivation { swiglu, relu, gelu, gelu_tanh, silu };
/// How forward runs a moe_layer: one router and the experts of one form, of those in its folder.
struct MoeLayerForm {
  std::string gate;  ///< the router's weight: `gate.NAME.weight` by its NAME, or a whole name
  int top_k = 1;     ///< experts of a token
  ExpertActivation experts =
      ExpertActivation::swiglu;       ///< swiglu: tensors `swiglu.*`, else `mlp.*`
  bool renormalise = false;           ///< the weights of a token are divided by their sum
  std::optional<int64_t> capacity{};  ///< tokens that an expert takes, the first ones; none: all
};
/// Reads "gate=NAME,top_k=K,experts=swiglu,renormalise=0,capacity=C"; the last two may be left out.
/// Throws Error(usage) that lists what is known.
MoeLayerForm parse_moe_layer(const std::string& text);

/// What forward can run of a folder; `model` is a language model's network, `moe_layer` one layer.
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

/// One component on named tensors.
struct ForwardRequest {
  ModelPart component = ModelPart::transformer;
  std::string inputs;      ///< safetensors file, by the reference's argument names; "": `tensors`
  TensorViews tensors;     ///< the same from memory, which is read during the call alone
  std::string outputs;     ///< safetensors file to write; "": what comes back is all
  bool trace = false;      ///< also `embedding`, `block.N`, ...
  bool overwrite = false;  ///< `outputs` may replace any file; see check_files
  std::optional<MoeLayerForm> moe{};      ///< of moe_layer, which needs it
  VaeTiling vae_tiling = VaeTiling::off;  ///< of vae.decode and vae.encode; automatic: off
  int64_t vae_tile = 0, vae_chunk = 0;    ///< as in GenerateRequest
};

/// A copy of a model's folder with fewer bytes.
struct QuantiseRequest {
  std::string output;                   ///< a folder that is not there yet
  Precision experts = Precision::int8;  ///< of routed experts' weights: int8 or int4
  /// Of a language model's attention, dense and shared MLPs and head: int8; none: as they are.
  std::optional<Precision> dense{};
};
/// A matrix in fewer bits.
struct QuantisedMatrix {
  std::string name;
  int bits = 8;
  /// The root of the mean squared error of its elements, as a share of that of their squares.
  double relative_error = 0;
};
/// What became of a folder.
struct QuantiseResult {
  int64_t matrices = 0;                 ///< that were quantised
  int64_t bytes_before = 0, bytes = 0;  ///< of the weights of the part that holds them
  std::vector<QuantisedMatrix> each{};  ///< by name
};

/// What a run is doing: encoding text, loading weights, denoising, decoding latents; or writing
/// weights in fewer bytes.
enum class Phase { encode, load, denoise, decode, quantise };

/// What a rank has done since it began to denoise, before a step.
struct RankProgress {
  int rank = 0;
  double compute_seconds = 0;  ///< in which it did not wait
  double wait_seconds = 0;     ///< blocked until messages arrived
  int64_t sent_bytes = 0;      ///< to other ranks, by the plan
  /// How often a result of an expert, and keys and values, of 0, 1, ... steps ago were read.
  std::vector<int64_t> expert_ages{}, kv_ages{};
};

/// Where a run is; handed to the progress callback on the caller's thread.
struct Progress {
  Phase phase = Phase::load;
  int step = 0, steps = 0;  ///< done, and in all
  double seconds = 0;       ///< since the phase began
  /// There while denoising, for the time of the callback: decodes the latent of this step, noise
  /// and all, to images (a video's frames) as the result has them. Costs nothing unless called;
  /// then the VAE is read and released again. In tiles where memory asks for it. Throws
  /// Error(model) for a folder without a VAE, Error(memory) where it does not fit beside the
  /// transformer, Error(cancelled) after a stop request: a callback that catches them lets the run
  /// go on.
  std::function<std::vector<Image>()> preview{};
  /// There with `preview`, for the same time: the latent of this step, f32, as --save-latents
  /// writes the last one. Ranks give their parts when it is called.
  std::function<TensorData()> latents{};
  float timestep = 0;  ///< of the step that was just done
  /// While denoising: the ranks of this process, each as it was when it last began a step.
  std::vector<RankProgress> ranks{};
};

/// What the caller holds in hand during a run. Known to all ranks before the start.
struct RunControl {
  std::stop_token stop;                              ///< checked once a step
  std::function<void(const Progress&)> on_progress;  ///< may be empty
  /// Gets what one should know about the way that a run takes, a sentence each; may be empty.
  std::function<void(const std::string&)> on_note;
};

}  // namespace tessera
