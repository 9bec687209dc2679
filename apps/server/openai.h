#pragma once

#include <functional>
#include <string>
#include <vector>

#include "server/field_names.h"
#include "server/multipart.h"
#include "server/routes.h"

namespace tessera::server {

/// Endpoints of OpenAI. Each request is a job that is cancelled if its client leaves.
HttpReply openai_models(const Parts& parts, const std::string& rest);
HttpReply openai_images(const Parts& parts, const HttpRequest& request);
/// Handles /v1/images/edits and /v1/images/variations: a form, or the same fields as JSON with
/// images in base64.
HttpReply openai_edits(const Parts& parts, const HttpRequest& request);
HttpReply openai_completions(const Parts& parts, const HttpRequest& request);
HttpReply openai_chat(const Parts& parts, const HttpRequest& request);

/// A translated OpenAI request, with options for the answer.
struct Translated {
  std::string model;
  Json request = Json::object();
  bool stream = false, stream_usage = false, url = false;
  FieldNames names{};  ///< names of the API for fields of `request`
};
/// These throw Refusal(400) for unsupported features. `find` returns the facts of a model by name.
Translated translate_images(const Json& body,
                            const std::function<const ModelFacts&(const std::string&)>& find);
/// Same for an edit or a variation; their images are fields of a job.
Translated translate_edits(const Json& body, bool variation,
                           const std::function<const ModelFacts&(const std::string&)>& find);
/// Converts the form of such a request to JSON: files in base64, other parts as texts, numbers or
/// flags.
Json json_of_form(const std::vector<FormPart>& parts);
Translated translate_completion(const Json& body);
Translated translate_chat(const Json& body);

}  // namespace tessera::server
