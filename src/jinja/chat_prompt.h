#pragma once

#include <memory>
#include <string>

#include "jinja/chat_template.h"

namespace tessera::jinja {

/// Formats a prompt as a user turn before the assistant's answer, for language models used as text
/// encoders. Const and thread-safe.
class ChatPrompt {
 public:
  /// Reads the template of a tokenizer's folder (chat_template.jinja, else the template in
  /// tokenizer_config.json). `thinks` sets the variable `enable_thinking`. Throws Error(model) for
  /// a folder without template, or a malformed template.
  ChatPrompt(const std::string& folder, bool thinks);

  /// Throws Error(usage) if the template refuses the prompt.
  std::string text(const std::string& prompt) const;

 private:
  std::shared_ptr<const ChatTemplate> template_;
  bool thinks_;
};

}  // namespace tessera::jinja
