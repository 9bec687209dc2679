#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "models/text/text_encoder.h"
#include "nn/block_stack.h"
#include "nn/latent_form.h"
#include "nn/weights.h"

namespace tessera::models {

/// How a family of models is used: what its configuration means, and how a request becomes rows.
class Recipe {
 public:
  virtual ~Recipe() = default;
  virtual int64_t blocks() const = 0;
  /// Builds the network, or the part of it that a rank needs.
  virtual std::unique_ptr<nn::Denoiser> make(const nn::Weights& weights, const nn::Portion& portion,
                                             nn::DType dtype) const = 0;
  /// The latent of a picture of so many latent pixels and frames; 0: as trained. Throws
  /// Error(usage).
  virtual nn::TokenLayout layout(int64_t height, int64_t width, int64_t frames = 0) const = 0;
  /// How the reference pipeline holds latents.
  virtual nn::LatentForm form() const { return nn::LatentForm::picture; }
  /// Class labels of the pictures -> conditioning of all rows; with `branches` the unconditional
  /// rows stand behind the conditional ones. Throws Error(usage) for a class that does not exist.
  virtual nn::Conditioning conditioning(const std::vector<int>& classes, bool branches) const = 0;
  /// Number of classes.
  virtual int64_t classes() const = 0;
  /// "rectified-flow" or "ddpm", when neither the request nor the folder says.
  virtual std::string scheduler() const = 0;
  /// Latent channels that guidance moves under a scheduler.
  virtual int64_t guided_channels(const std::string& scheduler) const = 0;
  /// The tensors of a `forward` file; optional ones may be left out.
  struct ForwardNames {
    std::string latent, timestep;
    std::vector<std::string> conditioning, optional{};
    float timestep_scale = 1;  ///< times the file's timestep: the scheduler's
  };
  virtual ForwardNames forward_names() const = 0;
  /// Text tokens that stand before the latent's in every row.
  virtual int64_t prefix(const nn::Conditioning&) const { return 0; }
  /// Conditioning of so many rows on meta, for estimates.
  virtual nn::Conditioning example(int64_t rows) const = 0;

  /// How text becomes conditioning: names of the reference pipeline's embeddings ("prompt_embeds";
  /// with "negative_" before it those of the other branch) and of the transformer's arguments.
  /// Empty: a model of classes.
  virtual std::vector<std::pair<std::string, std::string>> text_inputs() const { return {}; }
  /// A tokenizer of the folder and the encoder that reads its ids.
  struct TextPart {
    std::string tokenizer, encoder;
    int64_t tokens = 0;         ///< of every text, padding included
    bool masked = false;        ///< the encoder is told what is padding
    bool adjustable = false;    ///< a request may ask for other `tokens`
    bool optional = false;      ///< a folder may come without it
    bool as_tokenizer = false;  ///< its model_max_length goes before `tokens`
  };
  /// What the text of a pipeline of this class goes through; empty: there is no way.
  virtual std::vector<TextPart> text_parts(const std::string& /*pipeline*/) const { return {}; }
  /// Whether the pipeline cleans prompts (tokenizer::clean_caption) unless it is told.
  virtual bool cleans_captions() const { return false; }
  /// What a pipeline does to a prompt that is not cleaned before it is cut into tokens.
  virtual std::string cleaned(const std::string& prompt) const { return prompt; }
  /// What one part made of the texts; `states.last` is undefined where the folder lacks the part.
  struct EncodedText {
    TextStates states;
    nn::Tensor mask;  ///< i32 [rows, tokens]: ones, then zeros over padding
    int64_t tokens = 0;
  };
  /// Encoded texts in the order of text_parts -> embeddings by the names of text_inputs. Throws
  /// Error(model) for encoders that do not fit.
  virtual std::map<std::string, nn::Tensor> embeddings(const std::vector<EncodedText>&,
                                                       int64_t /*rows*/) const {
    return {};
  }
  /// A run of a model that takes text.
  struct TextRun {
    int64_t rows = 0, height = 0, width = 0;  ///< rows of the batch, pixels
    float guidance = 1;
  };
  /// Adds conditioning that is not text: sizes, guidance.
  virtual void add_conditions(const TextRun&, nn::Conditioning&) const {}
  /// What the reference pipeline does unless it is told.
  struct Defaults {
    int steps = 25;
    float guidance = 1.5f;
  };
  virtual Defaults defaults() const { return {}; }
  /// What a pipeline with `use_resolution_binning` computes.
  struct Bin {
    int64_t height = 0, width = 0;  ///< pixels
    bool resized_back = false;      ///< the picture is resized and cropped to what was asked for
  };
  /// For a request of so many pixels; nothing: the pipeline knows no such sizes. Throws
  /// Error(model) for a model whose trained size has no table.
  virtual std::optional<Bin> binned(int64_t /*height*/, int64_t /*width*/) const { return {}; }
  /// Frames of a video for each latent frame after the first; 0: a model of pictures.
  virtual int64_t frames_per_latent() const { return 0; }
  /// Whether guidance is an input of the transformer instead of a second branch.
  virtual bool embeds_guidance() const { return false; }
  /// Whether the transformer predicts the velocity of a flow, which a scheduler must solve.
  virtual bool predicts_flow() const { return false; }
  /// Whether the scheduler gets evenly spaced sigmas.
  virtual bool even_sigmas() const { return false; }
  /// Sizes for `inspect`, by their configuration names.
  virtual std::vector<std::pair<std::string, std::string>> facts() const = 0;
};

/// A family by the `model_type` or `_class_name` of its configuration.
struct Family {
  const char* type;
  std::unique_ptr<Recipe> (*recipe)(const base::Json& config, const std::string& where);
};
/// All families, in one list read from top to bottom.
const std::vector<Family>& families();
/// The recipe for a configuration. Throws Error(model) for a family that is not known, listing
/// those that are. `where` names the file in messages.
std::unique_ptr<Recipe> make_recipe(const std::string& type, const base::Json& config,
                                    const std::string& where);

/// Published sizes that have a name of their own: "dit_moe_xl" -> its configuration.
const std::vector<std::pair<std::string, base::Json>>& named_sizes();

}  // namespace tessera::models
