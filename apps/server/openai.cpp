#include "server/openai.h"

#include <cmath>
#include <fstream>
#include <iterator>

#include "server/header_values.h"
#include "server/logprobs.h"
#include "tessera/encodings.h"

namespace tessera::server {
namespace {

int64_t seconds(double time) { return static_cast<int64_t>(std::floor(time)); }

// Reports a failed job to its waiting client.
[[noreturn]] void throw_failure(const JobRecord& record, const FieldNames& names) {
  if (record.state == JobState::cancelled)
    throw Refusal(409, "cancelled", "the job '" + record.id + "' was cancelled");
  const std::string type = record.error.value("type", "server_error");
  const int status = type == "memory"                  ? 503
                     : type == "invalid_request_error" ? 400
                     : type == "time_limit"            ? 400
                     : type == "storage"               ? 507
                                                       : 500;
  const Json param = record.error.value("param", Json());
  throw in_form({status, type, record.error.value("message", "the job failed"),
                 param.is_string() ? param.get<std::string>() : ""},
                names);
}

// Submits a job; errors use the field names of the API.
JobPtr submit(const Parts& parts, const HttpRequest& request, const Translated& translated) {
  try {
    return parts.jobs.submit(request.client, translated.model, translated.request, 0);
  } catch (const Refusal& refusal) {
    throw in_form(refusal, translated.names);
  } catch (const Error& error) {
    throw refusal_of(error, translated.names);
  }
}

// Answers after the job has ended; the job is cancelled if the client leaves.
HttpReply when_done(Jobs& jobs, const JobPtr& job, const FieldNames& names,
                    const std::function<HttpReply(const JobRecord&)>& answer) {
  HttpReply reply;
  reply.later = [&jobs, job, names, answer,
                 last_id = uint64_t{0}](const Wake& wake) mutable -> std::optional<HttpReply> {
    while (true) {
      const EventLog::Part part = job->events.after(last_id, wake);
      if (part.ended) break;
      if (part.events.empty()) return std::nullopt;
      last_id = part.events.back().id;
    }
    const JobRecord record = jobs.record(*job);
    if (record.state != JobState::done) throw_failure(record, names);
    return answer(record);
  };
  reply.on_disconnect = [&jobs, job] { jobs.cancel(job); };
  return reply;
}

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Maps FinishReason to OpenAI's words.
std::string finish_of(const Json& word) { return word == "length" ? "length" : "stop"; }

Json usage_of(const JobRecord& record) {
  Json usage = record.usage;
  usage.erase("finish");
  return usage;
}

Json answer_of(const JobRecord& record, bool chat) {
  const Json texts = record.text.is_array() ? record.text : Json::array({record.text});
  Json choices = Json::array();
  for (size_t i = 0; i < texts.size(); ++i) {
    Json choice = {{"index", i},
                   {"finish_reason", finish_of(record.usage["finish"][i])},
                   {"logprobs", logprobs_of(record.report["completions"][i], chat)}};
    if (choice["finish_reason"] == "length") choice["limit"] = record.report["limit"];
    if (chat)
      choice["message"] = {{"role", "assistant"}, {"content", texts[i]}, {"refusal", nullptr}};
    else
      choice["text"] = texts[i];
    choices.push_back(std::move(choice));
  }
  return {{"id", (chat ? "chatcmpl-" : "cmpl-") + record.id},
          {"object", chat ? "chat.completion" : "text_completion"},
          {"created", seconds(record.created)},
          {"model", record.model},
          {"choices", choices},
          {"usage", usage_of(record)}};
}

/// Streams data: {...} for each finished text, then the finish reason, then [DONE].
class AnswerStream : public Stream {
 public:
  AnswerStream(Jobs& jobs, JobPtr job, bool chat, const Translated& translated)
      : jobs_(jobs),
        job_(std::move(job)),
        chat_(chat),
        usage_(translated.stream_usage),
        names_(translated.names) {}

  Piece next(const Wake& wake) override {
    std::string text;
    bool ended = false;
    while (text.empty()) {  // no later wake comes for events without output
      const EventLog::Part part = job_->events.after(after_, wake);
      for (const auto& event : part.events) {
        after_ = event.id;
        if (event.name == "text") text += delta(Json::parse(event.data()));
      }
      ended = part.ended;
      if (ended) text += end();
      if (part.events.empty()) break;
    }
    if (text.empty()) return {nullptr, ended};
    return {std::make_shared<const std::string>(std::move(text)), ended};
  }
  void closed(bool whole) override {
    if (!whole) jobs_.cancel(job_);
  }

 private:
  std::string chunk(const Json& choices, const Json& usage = {}) const {
    const JobRecord& r = job_->record;  // only immutable fields are read here
    Json json = {{"id", (chat_ ? "chatcmpl-" : "cmpl-") + r.id},
                 {"object", chat_ ? "chat.completion.chunk" : "text_completion"},
                 {"created", seconds(r.created)},
                 {"model", r.model},
                 {"choices", choices}};
    if (usage_) json["usage"] = usage;
    return sse(0, "", text_of(json));
  }
  std::string delta(const Json& event) {
    Json choice = {{"index", event["sequence"]}, {"finish_reason", nullptr}, {"logprobs", nullptr}};
    if (chat_)
      choice["delta"] = {{"role", "assistant"}, {"content", event["delta"]}};
    else
      choice["text"] = event["delta"];
    return chunk(Json::array({choice}));
  }
  std::string end() const {
    const JobRecord record = jobs_.record(*job_);
    if (record.state != JobState::done) {
      try {
        throw_failure(record, names_);
      } catch (const Refusal& refusal) {
        return sse(0, "", text_of(body_of(refusal)));
      }
    }
    std::string text;
    const Json& finishes = record.usage["finish"];
    for (size_t i = 0; i < finishes.size(); ++i) {
      Json choice = {
          {"index", i}, {"finish_reason", finish_of(finishes[i])}, {"logprobs", nullptr}};
      if (choice["finish_reason"] == "length") choice["limit"] = record.report["limit"];
      if (chat_)
        choice["delta"] = Json::object();
      else
        choice["text"] = "";
      text += chunk(Json::array({choice}));
    }
    if (usage_) text += chunk(Json::array(), usage_of(record));
    return text + sse(0, "", "[DONE]");
  }

  Jobs& jobs_;
  JobPtr job_;
  const bool chat_, usage_;
  const FieldNames names_;
  uint64_t after_ = 0;
};

HttpReply answer_text(const Parts& parts, const HttpRequest& request, const Translated& translated,
                      bool chat) {
  if (parts.models.find(translated.model).facts.kind != Kind::text)
    throw wrong("model",
                "model '" + translated.model + "' makes images; ask /v1/images/generations");
  const JobPtr job = submit(parts, request, translated);
  if (!translated.stream)
    return when_done(parts.jobs, job, translated.names, [chat](const JobRecord& record) {
      return json_reply(answer_of(record, chat));
    });
  return event_stream(std::make_shared<AnswerStream>(parts.jobs, job, chat, translated));
}

std::function<const ModelFacts&(const std::string&)> facts_of(const Parts& parts) {
  return
      [&](const std::string& name) -> const ModelFacts& { return parts.models.find(name).facts; };
}

Json model_of(const Parts& parts, const ModelFacts& facts) {
  return {{"id", facts.name},
          {"object", "model"},
          {"created", seconds(parts.start_time)},
          {"owned_by", "tessera"}};
}

}  // namespace

HttpReply openai_models(const Parts& parts, const std::string& rest) {
  if (rest.size() > 1) return json_reply(model_of(parts, parts.models.find(rest.substr(1)).facts));
  Json list = Json::array();
  for (const auto& served : parts.models.all()) list.push_back(model_of(parts, served->facts));
  return json_reply({{"object", "list"}, {"data", list}});
}

namespace {

HttpReply answer_images(const Parts& parts, const HttpRequest& request,
                        const Translated& translated) {
  if (parts.models.find(translated.model).facts.kind != Kind::image)
    throw wrong("model", "model '" + translated.model + "' makes no images");
  const JobPtr job = submit(parts, request, translated);
  const bool proxied = first_of(request.header("x-forwarded-proto")) == "https";
  const std::string base = (proxied ? "https://" : "http://") + request.header("host");
  const auto answer = [&jobs = parts.jobs, translated, base](const JobRecord& record) {
    Json data = Json::array();
    const Json results = results_of(record);
    for (size_t i = 0; i < results.size(); ++i) {
      if (translated.url)
        data.push_back({{"url", base + results[i]["url"].get<std::string>()}});
      else
        data.push_back(
            {{"b64_json", to_base64(read_bytes(jobs.file(record.client, record.id, i).first))}});
      data.back()["seed"] = results[i]["seed"];
    }
    return json_reply({{"created", seconds(record.created)}, {"data", data}});
  };
  return when_done(parts.jobs, job, translated.names, answer);
}

}  // namespace

HttpReply openai_images(const Parts& parts, const HttpRequest& request) {
  return answer_images(parts, request, translate_images(parse_body(request.body), facts_of(parts)));
}

HttpReply openai_edits(const Parts& parts, const HttpRequest& request) {
  const std::string type = request.header("content-type");
  const Json body = media_type_of(type) == "application/json"
                        ? parse_body(request.body)
                        : json_of_form(parse_form(request.body, type));
  const bool variation = request.path == "/v1/images/variations";
  return answer_images(parts, request, translate_edits(body, variation, facts_of(parts)));
}

HttpReply openai_completions(const Parts& parts, const HttpRequest& request) {
  return answer_text(parts, request, translate_completion(parse_body(request.body)), false);
}

HttpReply openai_chat(const Parts& parts, const HttpRequest& request) {
  return answer_text(parts, request, translate_chat(parse_body(request.body)), true);
}

}  // namespace tessera::server
