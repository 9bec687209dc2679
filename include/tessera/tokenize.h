#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

namespace tessera {

/// Texts to tokenize as a run of the model would.
struct TokenizeRequest {
  std::vector<std::string> prompts;
  std::string chat;       ///< for language models, as CompleteRequest::chat
  bool raw = false;       ///< prompts do not pass through the chat template
  std::string tokenizer;  ///< in a pipeline folder: "tokenizer", "tokenizer_2", ...; "": all
};

/// A text as tokenized by one tokenizer.
struct Tokenized {
  std::string tokenizer;            ///< "model" for a language model
  std::vector<int32_t> ids;         ///< without padding
  std::vector<std::string> pieces;  ///< the text of each; U+FFFD for half a character
  int64_t length = 0;               ///< ids with a text encoder's padding; 0: none
};
/// The tokens as a JSON list. Throws Error(cancelled) after a stop request.
std::string to_json(const std::vector<Tokenized>& all, const std::stop_token& stop = {});

}  // namespace tessera
