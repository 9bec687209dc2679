#pragma once

#include <ctime>
#include <string>

#include "jinja/tree.h"

namespace tessera::jinja {

/// A chat template in the Jinja dialect of transformers (trim_blocks, lstrip_blocks, break and
/// continue, tojson with order and characters preserved, raise_exception, strftime_now).
/// Unsupported features are refused by name.
class ChatTemplate {
 public:
  /// Throws Error(model) naming `where`, the line and the unsupported feature.
  ChatTemplate(const std::string& text, const std::string& where);

  /// Renders the template for `values` (messages, add_generation_prompt, bos_token, ...). `now`:
  /// time for strftime_now. Throws Error(usage) for errors raised by the template
  /// (raise_exception), for unsuitable values, and for excessive work.
  std::string render(const ValueDict& values, std::time_t now = std::time(nullptr)) const;
  /// True if the template names this value anywhere.
  bool reads(const std::string& name) const;
  /// True if the template names this part of a value anywhere: message.x or message['x'].
  bool reads_part(const std::string& name) const;

 private:
  std::string where_;
  size_t bytes_;
  Statements statements_;
};

}  // namespace tessera::jinja
