#pragma once

#include <memory>
#include <string>
#include <vector>

#include "diffusion/conditioning.h"
#include "diffusion/job.h"
#include "jinja/chat_prompt.h"
#include "tokenizer/tokenizer.h"

namespace tessera::diffusion {

/// Prompts as the pipeline hands them to its tokenizers; with `clean` those of a pipeline that
/// cleans prompts are cleaned, and `notes` gets what one should know about that.
std::vector<std::string> cleaned_prompts(const models::PipelineSpec& spec,
                                         std::vector<std::string> prompts, bool clean,
                                         std::vector<std::string>& notes);

/// A tokenizer, and the chat that a prompt stands in before it; null: in none.
struct TextReader {
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::shared_ptr<const jinja::ChatPrompt> chat{};

  std::string text(const std::string& prompt) const { return chat ? chat->text(prompt) : prompt; }
};
/// Opens what a text part reads prompts with. Throws Error(model) for what is malformed.
TextReader reader_of(const runtime::ModelState& state, const models::TextPart& part);
/// The ids that a text part's encoder gets of such prompts; sets the part's length where its
/// tokenizer says it. `notes` gets which prompt is longer.
models::TextBatch tokens_of(models::TextPart& part, const TextReader& reader,
                            const std::vector<std::string>& prompts,
                            std::vector<std::string>& notes);

/// What the folder's tokenizers make of the prompts of a request, part by part; with `two` of the
/// negative prompt, too, as the last one. `notes` gets what one should know about them. Throws
/// Error(model) for parts that are missing or malformed.
std::vector<Text> cut_texts(const runtime::ModelState& state, const GenerateRequest& request,
                            bool two, std::vector<std::string>& notes);

/// Embeddings by the names of PipelineSpec::text_inputs, of what the encoders made of each text;
/// with `two` the last text of a batch is negative.
Embeddings embeddings_of(const models::PipelineSpec& spec, const std::vector<Text>& texts,
                         const std::vector<models::TextStates>& states, bool two);
/// The embeddings of a job's texts in shape, found on meta, with what the encoders need; the
/// numbers are zeros. Reads no weight, and needs none. Throws for encoders that are malformed, or
/// do not fit the texts.
Embeddings foresee_texts(const runtime::ModelState& state, std::vector<Text>& texts, bool two,
                         std::vector<std::string>& notes);
/// So many texts of the length that each part reads, with what the encoders need for them, from
/// configurations alone; of an encoder that the folder lacks none, and it is not `there`.
std::vector<Text> usual_texts(const runtime::ModelState& state, int count);
/// Conditioning of all sequences of a job.
nn::Conditioning conditioning_of(const runtime::ModelState& state, const GenerateRequest& request,
                                 const Embeddings& embeddings, const Job& job);

}  // namespace tessera::diffusion
