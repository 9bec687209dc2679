#pragma once

#include <memory>
#include <string>
#include <vector>

#include "diffusion/conditioning.h"
#include "diffusion/job.h"
#include "jinja/chat_prompt.h"
#include "tokenizer/tokenizer.h"

namespace tessera::diffusion {

/// Prepares prompts for the pipeline's tokenizers. With `clean` prompts are cleaned if the pipeline
/// cleans prompts, and `notes` receives remarks for the user.
std::vector<std::string> cleaned_prompts(const models::PipelineSpec& spec,
                                         std::vector<std::string> prompts, bool clean,
                                         std::vector<std::string>& notes);

/// A tokenizer, and the chat template around prompts; null: no template.
struct TextReader {
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::shared_ptr<const jinja::ChatPrompt> chat{};

  std::string text(const std::string& prompt) const { return chat ? chat->text(prompt) : prompt; }
};
/// Opens the tokenizer and template of a text part. Throws Error(model) for malformed files.
TextReader reader_of(const runtime::ModelState& state, const models::TextPart& part);
/// Token ids of prompts for a text part's encoder. Sets the part's length if the tokenizer defines
/// a length. `notes` receives prompts beyond the length.
models::TextBatch tokens_of(models::TextPart& part, const TextReader& reader,
                            const std::vector<std::string>& prompts,
                            std::vector<std::string>& notes);

/// Tokenizes the prompts of a request, part by part; with `two` the last text of a part is the
/// negative prompt. `notes` receives remarks for the user. Throws Error(model) for missing or
/// malformed parts.
std::vector<Text> cut_texts(const runtime::ModelState& state, const GenerateRequest& request,
                            bool two, std::vector<std::string>& notes);

/// Embeddings by the names of PipelineSpec::text_inputs, from the encoders' states; with `two` the
/// last text of a batch is negative.
Embeddings embeddings_of(const models::PipelineSpec& spec, const std::vector<Text>& texts,
                         const std::vector<models::TextStates>& states, bool two);
/// Shapes of the embeddings of a job's texts, found on meta, and the cost of the encoders; the
/// numbers are zeros. Reads no weights. Throws for malformed encoders, and for encoders that do not
/// fit the texts.
Embeddings predict_texts(const runtime::ModelState& state, std::vector<Text>& texts, bool two,
                         std::vector<std::string>& notes);
/// Texts of each part's length, or of the request's, with the cost of their encoders, from
/// configurations alone. If the folder lacks an encoder, its text has no cost and `there` is false.
std::vector<Text> usual_texts(const runtime::ModelState& state, const GenerateRequest& request,
                              int count);
/// Conditioning of all sequences of a job.
nn::Conditioning conditioning_of(const runtime::ModelState& state, const GenerateRequest& request,
                                 const Embeddings& embeddings, const Job& job);

}  // namespace tessera::diffusion
