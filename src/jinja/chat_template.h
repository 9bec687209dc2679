#pragma once

#include <ctime>
#include <string>

#include "jinja/tree.h"

namespace tessera::jinja {

/// A chat template in the language that models bring them in: Jinja as transformers sets it up
/// (trim_blocks, lstrip_blocks, break and continue, tojson that keeps order and characters,
/// raise_exception, strftime_now). What of it is not supported is refused by name.
class ChatTemplate {
 public:
  /// Throws Error(model) naming `where`, the line and what is not supported.
  ChatTemplate(const std::string& text, const std::string& where);

  /// The text for `values` (messages, add_generation_prompt, bos_token, ...). `now` is what
  /// strftime_now shows. Throws Error(usage) for what the template itself refuses
  /// (raise_exception), for values that do not fit, and for more work than template and values
  /// explain.
  std::string render(const ValueDict& values, std::time_t now = std::time(nullptr)) const;
  /// Whether the template names this value anywhere.
  bool reads(const std::string& name) const;
  /// Whether it names this part of a value anywhere: message.x or message['x'].
  bool reads_part(const std::string& name) const;

 private:
  std::string where_;
  size_t bytes_;
  Statements statements_;
};

}  // namespace tessera::jinja
