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

/// The configuration of a part of a model.
struct Source {
  const base::Json& config;
  std::string where;          ///< the file, for messages
  std::string pipeline = {};  ///< class of the pipeline that it is a part of; "": of none
  bool distilled = false;     ///< that pipeline says that it is (is_distilled)
};

inline constexpr int64_t kMostTextTokens = 4096;  // of a text

/// The form in which an encoder reads a prompt: as it is, or as the user's turn in the chat
/// template of its tokenizer, whose answer begins with a thought or with an empty one.
enum class TextChat : uint8_t { none, thinking, no_thinking };

/// A tokenizer of a folder and the encoder that reads its ids.
struct TextPart {
  std::string tokenizer, encoder;
  int64_t tokens = 0;         ///< of every text, padding included
  bool masked = false;        ///< the encoder is told what is padding
  bool adjustable = false;    ///< a request may ask for other `tokens`
  bool optional = false;      ///< a folder may come without it
  bool as_tokenizer = false;  ///< its model_max_length goes before `tokens`
  bool trimmed = false;       ///< padding behind the longest text of a request is left out
  TextChat chat = TextChat::none;
  std::vector<int> hidden = {};  ///< TextBatch::hidden
};
/// What one part made of the texts; `states.last` is undefined where the folder lacks the part.
struct EncodedText {
  TextStates states;
  nn::Tensor mask;  ///< i32 [batch, tokens]: ones, then zeros over padding
  int64_t tokens = 0;
};
/// A run of a model that takes text.
struct TextRun {
  int64_t batch = 0, height = 0, width = 0;  ///< sequences, pixels
  float guidance = 1;
};

/// What a configuration means and how a request becomes a batch: all that a run needs to know of a
/// family of models, filled by the family's parse function.
struct PipelineSpec {
  /// The classes of published pipelines that compute this; others may do more with the same
  /// network.
  std::vector<std::string> pipelines;

  // The network.
  int64_t blocks = 0;
  /// Builds it, or the part of it that a rank needs.
  std::function<std::unique_ptr<nn::Denoiser>(const nn::Weights&, const nn::Portion&, nn::DType)>
      make;
  /// Sizes for `inspect`, by their configuration names.
  std::vector<std::pair<std::string, std::string>> facts;
  /// The tensors of a `forward` file; optional ones may be left out.
  struct ForwardNames {
    std::string latent = "hidden_states", timestep = "timestep";
    std::vector<std::string> conditioning, optional;
    /// The scheduler's timestep: the file's times scale, plus offset.
    float timestep_scale = 1, timestep_offset = 0;
    bool one_frame = false;  ///< latents have an axis of one frame: [batch, C, 1, H, W]
    bool packed = false;     ///< latents are tokens [batch, tokens, C * patch], whatever `form` is
  } forward_names;
  /// A conditioning tensor of a sequence: its shape without the batch, for estimates.
  struct Input {
    const char* name;
    std::vector<int64_t> sizes;
    nn::DType dtype = nn::DType::f32;
  };
  std::vector<Input> inputs;

  // The latent.
  nn::TokenLayout trained;     ///< of an image or video of the trained size
  int64_t token_multiple = 1;  ///< the network fills up to it: a sample's latent, and each text
  int64_t positions = 0;       ///< of patches of a side; 0: any number
  nn::LatentForm form = nn::LatentForm::image;        ///< how the reference pipeline holds latents
  int64_t frames_per_latent = 0;                      ///< after the first; 0: a model of images
  int64_t trained_frames = 0;                         ///< of a video of the trained length
  double frame_rate = 8;                              ///< of such a video, a second
  int64_t guided_channels = 0;                        ///< that guidance moves
  std::map<std::string, int64_t> guided_channels_of;  ///< under schedulers that move others

  // How it is run unless a request says.
  struct Defaults {
    int steps = 25;
    float guidance = 1.5f;
  } defaults;
  /// Those of the published distilled model of the family whose name says "turbo".
  std::optional<Defaults> turbo;
  int64_t classes = 0;           ///< 0: a model that takes text
  std::string scheduler;         ///< of a model of classes, when the folder does not say
  bool embeds_guidance = false;  ///< guidance is an input, not a second branch
  float no_guidance = 1;         ///< the --guidance that is none: scales count from there
  bool negated = false;          ///< the network predicts the negative of the flow
  bool predicts_flow = false;    ///< the velocity of a flow, which a scheduler must solve
  bool even_sigmas = false;      ///< the scheduler gets evenly spaced sigmas
  bool float_sigmas = false;     ///< spaced as PyTorch spaces floats
  double max_shift = 1.15;       ///< of a shift by the size, where a scheduler does not say
  /// Logarithm of the shift for so many tokens of a latent and steps, in place of the scheduler's;
  /// null: the scheduler says it.
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
  bool encodes_mean = false;    ///< of such an image the mean is taken, and nothing is drawn
  bool masks_patches = false;   ///< a mask has one value for each patch
  int64_t most_image_pixels = 0;  ///< to which images are scaled down; 0: any number
  /// Strength of a run that starts from an image, and of one with a mask.
  double strength = 0.6, inpaint_strength = 0.6;
  bool one_step_predicts = false;  ///< a run of one step gives the predicted clean sample
  bool cleans_captions = false;    ///< prompts go through caption::clean_caption unless told

  // How text becomes conditioning.
  bool joint_text = false;  ///< text tokens stand before the latent's in every sequence
  /// Names of the reference pipeline's embeddings ("prompt_embeds"; with "negative_" before it
  /// those of the other branch) and of the transformer's arguments. Empty: a model of classes.
  std::vector<std::pair<std::string, std::string>> text_inputs;
  std::vector<TextPart> text_parts;  ///< empty: only embeddings replace a prompt
  /// What a pipeline does to a prompt that is not cleaned; null: nothing.
  std::function<std::string(const std::string&)> plain_prompt;
  /// Encoded texts in the order of text_parts -> embeddings by the names of text_inputs. Throws
  /// Error(model) for encoders that do not fit.
  std::function<std::map<std::string, nn::Tensor>(const std::vector<EncodedText>&, int64_t batch)>
      embeddings;
  /// Adds conditioning that is not text, sizes, guidance; null: there is none.
  std::function<void(const TextRun&, nn::Conditioning&)> add_conditions;
  /// What a pipeline with `use_resolution_binning` computes.
  struct Bin {
    int64_t height = 0, width = 0;  ///< pixels
    bool resized_back = false;      ///< the image is resized and cropped to what was asked for
  };
  /// For a request of so many pixels; null: the pipeline knows no such sizes. Throws Error(model)
  /// for a model whose trained size has no table.
  std::function<Bin(int64_t height, int64_t width)> binned;

  bool takes_text() const { return !text_inputs.empty(); }
  /// The whole network as a portion.
  nn::Portion whole() const { return {{0, blocks}, true, true}; }
  /// The latent of so many latent pixels and frames; 0: as trained. Throws Error(usage) for sizes
  /// that are no multiple of the patch.
  nn::TokenLayout layout(int64_t height, int64_t width, int64_t frames = 0) const;
  /// Class labels of the images -> conditioning of all sequences; with `branches` the unconditional
  /// sequences stand behind the conditional ones. Throws Error(usage) for a class that does not
  /// exist.
  nn::Conditioning conditioning(const std::vector<int>& labels, bool branches) const;
  /// Text tokens that stand before the latent's in each sequence; empty: none do.
  std::vector<int64_t> prefixes(const nn::Conditioning& conditioning) const;
  /// Those of the longest sequence.
  int64_t prefix(const nn::Conditioning& conditioning) const;
  /// The argument of the network that says which text tokens are padding; "": none does.
  std::string text_mask() const;
  /// Conditioning of so many sequences on meta, for estimates.
  nn::Conditioning example(int64_t batch) const;
};

/// PipelineSpec::make of a network that is built from a configuration.
template <class Network, class Config>
auto network_of(const Config& config) {
  return [config](const nn::Weights& weights, const nn::Portion& portion, nn::DType dtype) {
    return std::make_unique<Network>(config, nn::ShardedWeights(weights, portion.shard), portion,
                                     dtype);
  };
}
/// PipelineSpec::facts of numbers.
std::vector<std::pair<std::string, std::string>> facts_of(
    std::initializer_list<std::pair<const char*, int64_t>> sizes);
/// The layout of an image of so many latent pixels a side in square patches.
nn::TokenLayout square_layout(int64_t channels, int64_t patch, int64_t side);
/// Throws Error(model) unless every head has the same even width and the whole fits.
void check_heads(const base::ConfigReader& read, int64_t heads, int64_t head_dim);
/// Throws Error(model) for a network that reads more than it moves: one that edits images.
void check_channels(const base::ConfigReader& read, int64_t in, int64_t out);

}  // namespace tessera::models
