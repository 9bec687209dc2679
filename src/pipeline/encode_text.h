#pragma once

#include <functional>

#include "pipeline/conditioning.h"
#include "pipeline/memory_plan.h"
#include "pipeline/model_state.h"

namespace tessera::pipeline {

/// Prompts as the pipeline hands them to its tokenizers; with `clean` those of a pipeline that
/// cleans prompts are cleaned, and `notes` gets what one should know about that.
std::vector<std::string> cleaned_prompts(const models::PipelineSpec& spec,
                                         std::vector<std::string> prompts, bool clean,
                                         std::vector<std::string>& notes);

/// The ids that a text part's encoder gets of such prompts; sets the part's length where its
/// tokenizer says it. Throws Error(model) for a tokenizer that is malformed.
models::TextBatch tokens_of(const ModelState& state, models::TextPart& part,
                            const std::vector<std::string>& prompts);

/// What the folder's own tokenizers and text encoders make of the prompts of a request, by the
/// names of PipelineSpec::text_inputs; with `two` also of the negative prompt. Encoders are loaded
/// one after the other and released; `notes` gets what one should know about them. Throws
/// Error(model) for parts that are missing or malformed.
Embeddings encode_prompts(const ModelState& state, const GenerateRequest& request, bool two,
                          const RunControl& control, std::vector<std::string>& notes);

/// What the encoders take for so many texts of the usual length, from configurations alone.
Need text_need(const ModelState& state, int texts);

/// Runs a text encoder on "input_ids" and, if there, "attention_mask" [batch, length] ->
/// "last_hidden_state", "text_embeds" or "pooler_output", with `trace` also "hidden.N". Throws
/// Error(usage) for inputs that do not fit.
std::map<std::string, tensor::Tensor> forward_text(
    const ModelState& state, const std::string& component,
    const std::map<std::string, tensor::Tensor>& inputs, bool trace, const RunControl& control);

}  // namespace tessera::pipeline
