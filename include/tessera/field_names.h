#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tessera {

/// Returns the name of a request field in a program, as "--top-k" for "top_k".
using FieldSpelling = std::function<std::string(const std::string& field)>;

/// Replaces each request field of a message by its spelling. Errors and notes of the library write
/// a field in backticks, as "`top_k` 0: expected ...". Text in single quotes is a user's
/// value and stays as given.
std::string spell_fields(std::string_view message, const FieldSpelling& spelling);

/// Returns the field at the beginning of the message, as "top_k", or "".
std::string field_of(std::string_view message);

/// Returns the message with plain field names, as "top_k 0: expected ...".
std::string plain_fields(std::string_view message);

}  // namespace tessera
