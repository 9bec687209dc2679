#pragma once

#include <map>
#include <string>

#include "server/refusal.h"
#include "tessera/error.h"

namespace tessera::server {

/// What a form of requests calls fields of a job: {"count", "n"} of OpenAI's images.
using FieldNames = std::map<std::string, std::string>;

/// A sentence of the library, whose names are the options of the command line, in the words of a
/// body: "--top-k 0" is "top_k 0", and what is no field is the server's ("the server's --plan").
/// Of a path, which is the server's own, the name of the file is told. What stands in quotes stays,
/// but with `quoted_paths` one that begins there, where no client's words are quoted.
std::string in_fields(const std::string& sentence, const FieldNames& form = {},
                      bool quoted_paths = false);
/// The field that a sentence of the library begins with, which is to blame; "": none.
std::string field_blamed(const std::string& sentence, const FieldNames& form = {});

/// What an error of the library means to a client: usage and plan 400, memory 503, else 500; in the
/// words of a body.
Refusal refusal_of(const Error& error, const FieldNames& form = {});
/// A refusal under the names of jobs, under those of a form.
Refusal in_form(const Refusal& refusal, const FieldNames& form);

}  // namespace tessera::server
