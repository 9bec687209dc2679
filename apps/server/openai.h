#pragma once

#include <functional>
#include <string>
#include <vector>

#include "server/field_names.h"
#include "server/multipart.h"
#include "server/routes.h"

namespace tessera::server {

/// OpenAI's forms, each a job of its own: its client waits, and is gone with it.
HttpReply openai_models(const Parts& parts, const std::string& rest);
HttpReply openai_images(const Parts& parts, const HttpRequest& request);
/// Reads /v1/images/edits and /v1/images/variations: a form, or the same fields as JSON with images
/// in base64.
HttpReply openai_edits(const Parts& parts, const HttpRequest& request);
HttpReply openai_completions(const Parts& parts, const HttpRequest& request);
HttpReply openai_chat(const Parts& parts, const HttpRequest& request);

/// A form of OpenAI as a request of ours; what it says of the answer.
struct Translated {
  std::string model;
  Json request = Json::object();
  bool stream = false, stream_usage = false, url = false;
  FieldNames names{};  ///< what the form calls fields of `request`
};
/// Throw Refusal(400) for what Tessera does not do.
/// `find` gives the facts of a model by its name.
Translated translate_images(const Json& body,
                            const std::function<const ModelFacts&(const std::string&)>& find);
/// The same of an edit or a variation, whose images are fields of a job.
Translated translate_edits(const Json& body, bool variation,
                           const std::function<const ModelFacts&(const std::string&)>& find);
/// A form of such a request as JSON: files in base64, other parts as texts, numbers or flags.
Json json_of_form(const std::vector<FormPart>& parts);
Translated translate_completion(const Json& body);
Translated translate_chat(const Json& body);

}  // namespace tessera::server
