#pragma once

#include <string>
#include <vector>

namespace tessera::jinja {

/// A piece of a chat template: text between the tags, or a word inside one.
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
  std::string text;  ///< of a text: what it stands for, escapes read
  int line = 1;
};

/// Cuts a chat template as Jinja does in transformers' set-up: trim_blocks, lstrip_blocks, the
/// source's last newline left out. Comments are gone. The last token is `end`. Throws Error(model)
/// naming `where`, the line and what is malformed.
std::vector<TemplateToken> template_tokens(const std::string& source, const std::string& where);

}  // namespace tessera::jinja
