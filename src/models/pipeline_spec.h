#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/config_reader.h"
#include "base/json.h"
#include "models/text/text_encoder.h"
#include "nn/block_stack.h"
#include "nn/latent_form.h"
#include "nn/sharded_weights.h"

namespace tessera::models {

/// Configuration of a part of a model.
struct Source {
  const base::Json& config;
  std::string where;          ///< file name for messages
  std::string pipeline = {};  ///< class of the enclosing pipeline; "": none
  bool distilled = false;     ///< the pipeline is declared distilled (is_distilled)
};

inline constexpr int64_t kMostTextTokens = 4096;  // maximum tokens of a text

/// Prompt format of an encoder: plain, or a user turn in the tokenizer's chat template, with an
/// answer that begins with or without thinking.
enum class TextChat : uint8_t { none, thinking, no_thinking };

/// A tokenizer of a folder and its encoder.
struct TextPart {
  std::string tokenizer, encoder;
  int64_t tokens = 0;         ///< length of every text with padding
  bool masked = false;        ///< the encoder gets a padding mask
  bool adjustable = false;    ///< a request may change `tokens`
  bool optional = false;      ///< a folder may lack this part
  bool as_tokenizer = false;  ///< the tokenizer's model_max_length overrides `tokens`
  bool trimmed = false;       ///< padding beyond the longest text of a request is dropped
  TextChat chat = TextChat::none;
  std::vector<int> hidden = {};  ///< TextBatch::hidden
};
/// Encoded texts from a part; `states.last` is undefined if the folder lacks the part.
struct EncodedText {
  TextStates states;
  nn::Tensor mask;  ///< i32 [batch, tokens]: ones for text, zeros for padding
  int64_t tokens = 0;
};
/// A batch of a text-to-image run.
struct TextRun {
  int64_t batch = 0, height = 0, width = 0;  ///< sequences, pixels
  float guidance = 1;
};

/// Describes a family of models to the engine: how a configuration is interpreted and a request
/// becomes a batch. Filled by the family's parse function.
struct PipelineSpec {
  /// Classes of supported pipelines; other pipelines may use the same network differently.
  std::vector<std::string> pipelines;

  // Network.
  int64_t blocks = 0;
  /// Builds the network, or a rank's portion.
  std::function<std::unique_ptr<nn::Denoiser>(const nn::Weights&, const nn::Portion&, nn::DType)>
      make;
  /// Sizes for `inspect`, named as in the configuration.
  std::vector<std::pair<std::string, std::string>> facts;
  /// Names of the tensors in a `forward` file; some are optional.
  struct ForwardNames {
    std::string latent = "hidden_states", timestep = "timestep";
    std::vector<std::string> conditioning, optional;
    /// Scheduler timestep: the file's timestep times scale, plus offset.
    float timestep_scale = 1, timestep_offset = 0;
    bool one_frame = false;  ///< latents have an axis for a single frame: [batch, C, 1, H, W]
    bool packed = false;     ///< latents are tokens [batch, tokens, C * patch], for any `form`
  } forward_names;
  /// A conditioning tensor's shape without the batch, for estimates.
  struct Input {
    const char* name;
    std::vector<int64_t> sizes;
    nn::DType dtype = nn::DType::f32;
  };
  std::vector<Input> inputs;

  // Latents.
  nn::TokenLayout trained;     ///< layout of an image or video of the trained size
  int64_t token_multiple = 1;  ///< the network pads latent and text of each sample to a multiple
  int64_t positions = 0;       ///< maximum patches of a side; 0: unlimited
  nn::LatentForm form = nn::LatentForm::image;        ///< latent format of the reference pipeline
  int64_t frames_per_latent = 0;                      ///< frames after the first; 0: an image model
  int64_t trained_frames = 0;                         ///< frames of a video of the trained length
  double frame_rate = 8;                              ///< frames a second of a trained video
  int64_t guided_channels = 0;                        ///< number of channels with guidance
  std::map<std::string, int64_t> guided_channels_of;  ///< other values, by scheduler

  // Defaults of a run.
  struct Defaults {
    int steps = 25;
    float guidance = 1.5f;
  } defaults;
  /// Those of the published distilled model of the family whose name says "turbo".
  std::optional<Defaults> turbo;
  int64_t classes = 0;           ///< 0: a model that takes text
  std::string scheduler;         ///< class models use this one if the folder names none
  bool embeds_guidance = false;  ///< guidance is an input, not a second branch
  float no_guidance = 1;         ///< --guidance value that means no guidance
  bool negated = false;          ///< the network predicts the negative of the flow
  bool predicts_flow = false;    ///< predicts the flow's velocity, for a flow scheduler
  bool even_sigmas = false;      ///< the scheduler gets evenly spaced sigmas
  bool float_sigmas = false;     ///< spaced in f32, as in PyTorch
  double max_shift = 1.15;       ///< default max_shift of dynamic shifting
  /// Logarithm of the timestep shift for a number of latent tokens and steps, overriding the
  /// scheduler's; null: the scheduler decides.
  std::function<double(int64_t tokens, int steps)> size_shift;
  bool distilled = false;         ///< guidance is ignored
  bool empty_negative = false;    ///< guidance leads away from the empty text, whatever is asked
  bool takes_references = false;  ///< images may stand beside the noise, as tokens
  /// Widths and heights to which a reference is resized, that of the nearest aspect; empty: it is
  /// scaled down to most_image_pixels and cut to patches.
  std::vector<std::pair<int, int>> reference_sizes;
  size_t most_references = 16;  ///< images that may stand beside the noise
  bool fills_mask = false;      ///< the network reads a masked image and its mask beside the noise
  bool sized_by_image = false;  ///< a run from an image has its size, unless a request says
  bool encodes_mean = false;    ///< an input image's latent is the mean; nothing is drawn
  bool masks_patches = false;   ///< a mask has one value for each patch
  int64_t most_image_pixels = 0;  ///< to which images are scaled down; 0: any number
  /// Strength of a run that starts from an image, and of one with a mask.
  double strength = 0.6, inpaint_strength = 0.6;
  bool one_step_predicts = false;  ///< a single step returns the predicted clean sample
  bool cleans_captions = false;    ///< prompts go through caption::clean_caption by default

  // Text conditioning.
  bool joint_text = false;  ///< text tokens precede the latent's in every sequence
  /// Pairs of the reference pipeline's embedding name ("prompt_embeds"; prefix "negative_" for the
  /// other branch) and the transformer's argument. Empty: a class-conditional model.
  std::vector<std::pair<std::string, std::string>> text_inputs;
  std::vector<TextPart> text_parts;  ///< empty: prompts only as embeddings
  /// The pipeline's change to a prompt that is not cleaned; null: none.
  std::function<std::string(const std::string&)> plain_prompt;
  /// Encoded texts in the order of text_parts -> embeddings with the names of text_inputs. Throws
  /// Error(model) for mismatched encoders.
  std::function<std::map<std::string, nn::Tensor>(const std::vector<EncodedText>&, int64_t batch)>
      embeddings;
  /// Adds conditioning other than text: sizes, guidance; null: none.
  std::function<void(const TextRun&, nn::Conditioning&)> add_conditions;
  /// Size computed by a pipeline with `use_resolution_binning`.
  struct Bin {
    int64_t height = 0, width = 0;  ///< pixels
    bool resized_back = false;      ///< the image is resized and cropped to the requested size
  };
  /// Bin for a requested size in pixels; null: no binning. Throws Error(model) for a model without
  /// a table for its trained size.
  std::function<Bin(int64_t height, int64_t width)> binned;

  bool takes_text() const { return !text_inputs.empty(); }
  /// Portion with the whole network.
  nn::Portion whole() const { return {{0, blocks}, true, true}; }
  /// Token layout of a latent of this size and number of frames; 0: as trained. Throws Error(usage)
  /// for sizes that are not a multiple of the patch.
  nn::TokenLayout layout(int64_t height, int64_t width, int64_t frames = 0) const;
  /// Class labels -> conditioning of all sequences; with `branches`, unconditional sequences follow
  /// the conditional ones. Throws Error(usage) for an unknown class.
  nn::Conditioning conditioning(const std::vector<int>& labels, bool branches) const;
  /// Number of text tokens before the latent's in each sequence; empty: none.
  std::vector<int64_t> prefixes(const nn::Conditioning& conditioning) const;
  /// Prefix of the longest sequence.
  int64_t prefix(const nn::Conditioning& conditioning) const;
  /// The network's argument for the padding mask of text; "": none.
  std::string text_mask() const;
  /// Conditioning of a batch on meta, for estimates; `text_tokens`: of the adjustable text, 0: as
  /// usual.
  nn::Conditioning example(int64_t batch, int64_t text_tokens = 0) const;
};

/// PipelineSpec::make for a network with a configuration.
template <class Network, class Config>
auto network_of(const Config& config) {
  return [config](const nn::Weights& weights, const nn::Portion& portion, nn::DType dtype) {
    return std::make_unique<Network>(config, nn::ShardedWeights(weights, portion.shard), portion,
                                     dtype);
  };
}
/// PipelineSpec::facts from numbers.
std::vector<std::pair<std::string, std::string>> facts_of(
    std::initializer_list<std::pair<const char*, int64_t>> sizes);
/// Layout of a square image with square patches; `side` in latent pixels.
nn::TokenLayout square_layout(int64_t channels, int64_t patch, int64_t side);
/// Throws Error(model) unless all heads have the same even width and the total matches.
void check_heads(const base::ConfigReader& reader, int64_t heads, int64_t head_dim);
/// Throws Error(model) for a network with more input than output channels, such as an image editing
/// model.
void check_channels(const base::ConfigReader& reader, int64_t in, int64_t out);

}  // namespace tessera::models
