#pragma once

#include <map>
#include <string>

#include "server/refusal.h"
#include "tessera/error.h"

namespace tessera::server {

/// What a form of requests calls fields of a job: {"count", "n"} of OpenAI's images.
using FieldNames = std::map<std::string, std::string>;

/// Returns a message of the library in the words of a body: the field `top_k` as top_k, and a field
/// that a body does not have as the server's option ("the server's --plan"). Folders of paths are
/// left out, since they are the server's own; inside quotes only with `quoted_paths`, for messages
/// that quote no client.
std::string in_fields(const std::string& sentence, const FieldNames& form = {},
                      bool quoted_paths = false);
/// Returns the field that a message is about, which is the one it begins with; "": none.
std::string field_blamed(const std::string& sentence, const FieldNames& form = {});

/// What an error of the library means to a client: usage and plan 400, memory 503, else 500; in the
/// words of a body.
Refusal refusal_of(const Error& error, const FieldNames& form = {});
/// A refusal under the names of jobs, under those of a form.
Refusal in_form(const Refusal& refusal, const FieldNames& form);

}  // namespace tessera::server
