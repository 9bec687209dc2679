#pragma once

#include <string>
#include <vector>

namespace tessera::jinja {

/// A token of a chat template: text between tags, or a word inside a tag.
struct TemplateToken {
  enum class Kind {
    data,
    print,
    print_end,
    statement,
    statement_end,
    name,
    text,
    whole,
    real,
    sign,
    end
  };
  Kind kind = Kind::end;
  std::string text;  ///< for texts: the value after decoding escapes
  int line = 1;
};

/// Splits a chat template as Jinja does with transformers' settings: trim_blocks, lstrip_blocks,
/// last newline of the source dropped. Comments are dropped. The last token is `end`. Throws
/// Error(model) naming `where`, the line and the malformed part.
std::vector<TemplateToken> template_tokens(const std::string& source, const std::string& where);

}  // namespace tessera::jinja
