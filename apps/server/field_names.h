#pragma once

#include <map>
#include <string>

#include "server/refusal.h"
#include "tessera/error.h"

namespace tessera::server {

/// Names that an API gives to fields of a job: {"count", "n"} in OpenAI's images API.
using FieldNames = std::map<std::string, std::string>;

/// Returns a message of the library in the words of a body: the field `top_k` as top_k, and a field
/// that a body does not have as the server's option ("the server's --plan"). Folders of paths are
/// left out, since they are the server's own; inside quotes only with `quoted_paths`, for messages
/// that quote no client.
std::string in_fields(const std::string& sentence, const FieldNames& form = {},
                      bool quoted_paths = false);
/// Returns the field that a message begins with and is about, or "" if there is no such field.
std::string field_blamed(const std::string& sentence, const FieldNames& form = {});

/// Maps a library error to HTTP: usage and plan 400, memory 503, others 500. Messages name request
/// fields.
Refusal refusal_of(const Error& error, const FieldNames& form = {});
/// Translates field names of a refusal from jobs to those of an API.
Refusal in_form(const Refusal& refusal, const FieldNames& form);

}  // namespace tessera::server
