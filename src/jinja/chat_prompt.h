#pragma once

#include <memory>
#include <string>

#include "jinja/chat_template.h"

namespace tessera::jinja {

/// A prompt as the user's turn of a chat, before the assistant's answer: what a language model
/// reads as a text encoder. Const and thread-safe.
class ChatPrompt {
 public:
  /// Reads the template of a tokenizer's folder (chat_template.jinja, else that of
  /// tokenizer_config.json). `thinks` is its value `enable_thinking`. Throws Error(model) for a
  /// folder without template, and for one that is malformed.
  ChatPrompt(const std::string& folder, bool thinks);

  /// Throws Error(usage) for what the template refuses.
  std::string text(const std::string& prompt) const;

 private:
  std::shared_ptr<const ChatTemplate> template_;
  bool thinks_;
};

}  // namespace tessera::jinja
