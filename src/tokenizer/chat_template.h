#pragma once

#include <memory>
#include <string>

#include "base/json.h"

namespace tessera::tokenizer {

/// A chat template in the subset of Jinja that language models use: text, {{ expression }}, for
/// (with loop.index, index0, first, last), if / elif / else, set (namespaces too), the operators
/// + - * % ~ == != < <= > >= and or not in, `is defined`, `is none`, `is string`, `a if b else c`,
/// attributes, indices and slices, the filters trim, length, upper, lower, join, tojson, and strip,
/// lstrip, rstrip, startswith, endswith, split of strings. Anything else is refused by name.
class ChatTemplate {
 public:
  /// Throws Error(model) naming `where`, the line and what is not supported.
  ChatTemplate(const std::string& text, const std::string& where);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;

  /// The text for `values` (messages, add_generation_prompt, bos_token, ...). Throws Error(usage)
  /// for what the template itself refuses (raise_exception) and for values that do not fit.
  std::string render(const base::Json& values) const;

  struct Node;

 private:
  std::string where_;
  std::unique_ptr<Node> root_;
};

}  // namespace tessera::tokenizer
