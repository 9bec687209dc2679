#pragma once

#include <functional>

#include "load/meta_weights.h"
#include "pipeline/conditioning.h"
#include "pipeline/plan_job.h"

namespace tessera::pipeline {

inline constexpr int64_t kMostTextTokens = 4096;  // of a text

/// Prompts as the pipeline hands them to its tokenizers; with `clean` those of a pipeline that
/// cleans prompts are cleaned, and `notes` gets what one should know about that.
std::vector<std::string> cleaned_prompts(const models::PipelineSpec& spec,
                                         std::vector<std::string> prompts, bool clean,
                                         std::vector<std::string>& notes);

/// The ids that a text part's encoder gets of such prompts; sets the part's length where its
/// tokenizer says it. `notes` gets which prompt is longer. Throws Error(model) for a tokenizer that
/// is malformed.
models::TextBatch tokens_of(const ModelState& state, models::TextPart& part,
                            const std::vector<std::string>& prompts,
                            std::vector<std::string>& notes);

/// What the folder's tokenizers make of the prompts of a request, part by part; with `two` of the
/// negative prompt, too, as the last one. `notes` gets what one should know about them. Throws
/// Error(model) for parts that are missing or malformed.
std::vector<Text> cut_texts(const ModelState& state, const GenerateRequest& request, bool two,
                            std::vector<std::string>& notes);
/// What the folder's text encoders make of a job's texts, by the names of
/// PipelineSpec::text_inputs; nothing on other processes than the first. They are loaded one after
/// the other and released, with Job::keeps_text but for their packed weights.
Embeddings encode_texts(const ModelState& state, bool two, const RunControl& control, Job& job);
/// The same in shape, found on meta, with what it needs; the numbers are zeros. Reads no weight,
/// and needs none.
/// Throws for encoders that are malformed, or do not fit the texts.
Embeddings foresee_texts(const ModelState& state, std::vector<Text>& texts, bool two,
                         std::vector<std::string>& notes);
/// So many texts of the length that each part reads, with what the encoders need for them, from
/// configurations alone; of an encoder that the folder lacks none, and it is not `there`.
std::vector<Text> usual_texts(const ModelState& state, int count);

/// Weights of a text encoder that hold nothing, of a folder that may hold a description alone.
std::shared_ptr<const load::MetaWeights> meta_weights_of(const ModelState& state,
                                                         const std::string& part);
/// A text encoder of the folder over weights, whose names are not checked.
std::unique_ptr<models::TextEncoder> encoder_over(
    const ModelState& state, const std::string& part,
    const std::shared_ptr<const nn::Weights>& weights);
/// What an encoder makes of texts, every layer of it in numbers: else it throws Error(model).
models::TextStates numbers_of(const models::TextEncoder& encoder, const models::TextBatch& batch,
                              const std::string& part, const models::LayerWeights& from = {});

/// Runs a text encoder on "input_ids" and, if there, "attention_mask" [batch, length] ->
/// "last_hidden_state", "text_embeds" or "pooler_output", with `trace` also "hidden.N". Throws
/// Error(usage) for inputs that do not fit.
std::map<std::string, tensor::Tensor> forward_text(
    const ModelState& state, const std::string& component,
    const std::map<std::string, tensor::Tensor>& inputs, bool trace, const RunControl& control);

}  // namespace tessera::pipeline
