#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

namespace tessera {

/// Texts to be cut into tokens as a run of the model would cut them.
struct TokenizeRequest {
  std::vector<std::string> prompts;
  std::string chat;       ///< of language models, as CompleteRequest::chat
  bool raw = false;       ///< prompts are not put into the model's chat template
  std::string tokenizer;  ///< of a pipeline folder: "tokenizer", "tokenizer_2", ...; "": all
};

/// A text as one tokenizer cuts it.
struct Tokenized {
  std::string tokenizer;            ///< "model" of a language model
  std::vector<int32_t> ids;         ///< padding left out
  std::vector<std::string> pieces;  ///< the text of each; of half a character U+FFFD
  int64_t length = 0;               ///< ids with the padding that a text encoder gets; 0: none
};
/// The tokens as a JSON list. Throws Error(cancelled) after a stop request.
std::string to_json(const std::vector<Tokenized>& all, const std::stop_token& stop = {});

}  // namespace tessera
