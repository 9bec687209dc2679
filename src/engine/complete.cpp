#include "tessera/complete.h"

#include "base/json_text.h"
#include "engine/report_json.h"
#include "engine/state.h"
#include "pipeline/complete.h"
#include "tessera/words.h"

namespace tessera {

using base::Json;

CompleteResult Model::complete(const CompleteRequest& request,
                               const CompleteControl& control) const {
  return pipeline::complete(state(), request, control);
}

void Model::check(const CompleteRequest& request, const std::stop_token& stop) const {
  pipeline::check(state(), request, stop);
}

double ruled_share(const CompleteResult& result) {
  int64_t committed = 0, ruled = 0;
  for (const Completion& c : result.completions)
    for (const auto& pass : c.passes) {
      committed += pass.committed;
      if (pass.ruled) ruled += pass.committed;
    }
  return committed ? double(ruled) / double(committed) : 1;
}

namespace {

Json json_of(const Completion::TokenLogprob& token, bool has_text) {
  Json entry{{"id", token.id}, {"logprob", token.logprob}};
  if (!has_text) return entry;
  entry["text"] = token.text;
  entry["bytes"] = std::vector<uint8_t>(token.bytes.begin(), token.bytes.end());
  return entry;
}

Json json_of(const Completion::Logprobs& logprobs, bool has_text) {
  Json entry = json_of(logprobs.token, has_text), top = Json::array();
  for (const auto& token : logprobs.top) top.push_back(json_of(token, has_text));
  entry["top"] = std::move(top);
  return entry;
}

}  // namespace

std::string to_json(const CompleteResult& r) {
  Json list = Json::array();
  int64_t generated = 0;
  for (const Completion& c : r.completions) {
    Json passes = Json::array();
    int64_t deciding = 0;
    for (const auto& p : c.passes) {
      deciding += p.committed > 0;
      passes.push_back({{"kind", word_of(p.kind)},
                        {"from", p.from},
                        {"to", p.to},
                        {"committed", p.committed},
                        {"ruled", p.ruled},
                        {"experts", p.experts}});
    }
    const auto count = static_cast<int64_t>(c.ids.size());
    generated += count;
    Json entry({{"prompt", c.prompt},
                {"seed", c.seed},
                {"prompt_ids", c.prompt_ids},
                {"ids", c.ids},
                {"confidences", c.confidences},
                {"text", c.text},
                {"finish", word_of(c.finish)},
                {"usage",
                 {{"prompt_tokens", c.prompt_ids.size()},
                  {"reused_tokens", c.reused},
                  {"completion_tokens", count}}},
                {"forwards", c.passes.size()},
                {"tokens_per_forward", deciding ? double(count) / double(deciding) : 0.0},
                {"passes", passes}});
    for (const auto& logprobs : c.logprobs)
      entry["logprobs"].push_back(json_of(logprobs, r.has_texts));
    list.push_back(std::move(entry));
  }
  Json ranks = Json::array();
  for (const auto& rank : r.per_rank) ranks.push_back(Json(json_of(rank)));
  Json result({{"completions", list},
               {"forwards", r.forwards},
               {"seconds", r.seconds},
               {"pass_seconds", r.pass_seconds},
               {"tokens_per_second", r.seconds > 0 ? double(generated) / r.seconds : 0.0},
               {"experts_read", r.experts_read},
               {"bytes_read", r.bytes_read},
               {"bytes_sent", r.bytes_sent},
               {"peak_bytes", Json(json_of(r.peak_bytes))},
               {"per_rank", ranks},
               {"plan", r.plan},
               {"device", r.device},
               {"select", r.select},
               {"ruled_share", ruled_share(r)},
               {"decode", r.decode},
               {"max_tokens", r.max_tokens},
               {"limit", r.limit},
               {"program", "Tessera"}});
  if (!r.expert_load.empty()) result["expert_load"] = r.expert_load;
  if (r.streamed) result["streamed_experts"] = Json(json_of(*r.streamed));
  return base::json_text(result);
}

}  // namespace tessera
