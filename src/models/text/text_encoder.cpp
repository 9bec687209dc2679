#include "models/text/text_encoder.h"

#include <algorithm>

#include "base/fail.h"
#include "base/printable.h"
#include "models/text/bert_encoder.h"
#include "models/text/clip_encoder.h"
#include "models/text/t5_encoder.h"

namespace tessera::models {

TextStates TextEncoder::encode(const TextBatch& batch, const TextTrace& trace) const {
  require(batch.length >= 1 && batch.rows() >= 1 &&
              static_cast<int64_t>(batch.ids.size()) == batch.rows() * batch.length,
          ErrorCode::usage, "{} token ids for {} texts of {} tokens", batch.ids.size(),
          batch.rows(), batch.length);
  require(longest() == 0 || batch.length <= longest(), ErrorCode::usage,
          "{} tokens of text; this text encoder takes at most {}", batch.length, longest());
  for (const int32_t id : batch.ids)
    require(id >= 0 && id < vocabulary(), ErrorCode::usage,
            "token {}: the text encoder knows ids from 0 to {}", id, vocabulary() - 1);
  for (const int64_t visible : batch.visible)
    require(visible >= 0 && visible <= batch.length, ErrorCode::usage, "{} of {} tokens are text",
            visible, batch.length);
  return run(batch, trace);
}

std::unique_ptr<TextEncoder> make_text_encoder(const std::string& class_name,
                                               const base::Json& config, const std::string& where,
                                               std::shared_ptr<const nn::Weights> weights,
                                               tensor::DType dtype) {
  if (class_name == "T5EncoderModel")
    return std::make_unique<T5Encoder>(parse_t5_config(config, where), std::move(weights), dtype);
  if (class_name == "BertModel")
    return std::make_unique<BertEncoder>(parse_bert_config(config, where), std::move(weights),
                                         dtype);
  const bool projects = class_name == "CLIPTextModelWithProjection";
  require(projects || class_name == "CLIPTextModel", ErrorCode::model,
          "{}: the text encoder {} is not supported; supported are T5EncoderModel, CLIPTextModel, "
          "CLIPTextModelWithProjection and BertModel",
          where, base::printable(class_name));
  return std::make_unique<ClipEncoder>(parse_clip_config(config, where, projects),
                                       std::move(weights), dtype);
}

tensor::Tensor by_rows(const tensor::Tensor& x, const TextBatch& batch) {
  return x.reshape({batch.rows(), batch.length, x.size(1)});
}

}  // namespace tessera::models
