#include "tessera/report.h"

#include <set>

#include "engine/report_json.h"
#include "tessera/words.h"

namespace tessera {

using Json = nlohmann::ordered_json;

namespace {

std::map<std::string, double> seconds_of(const std::map<Phase, double>& phases) {
  std::map<std::string, double> seconds;
  for (const auto& [phase, duration] : phases) seconds[word_of(phase)] = duration;
  return seconds;
}

std::string precision_of(const Report& r) {
  const std::string base_word =
      word_of(r.precision == Precision::f32 ? r.precision : Precision::bf16);
  std::string text = base_word;
  if (r.int4_experts)
    text += ", experts i4";
  else if (r.int8_experts)
    text += ", experts i8";
  std::set<std::string> forms;
  for (const auto& [part, counts] : r.products)
    for (const auto& [form, count] : counts) forms.insert(form == "int4" ? "i4" : "i8");
  for (const std::string& form : forms)
    text += (form == *forms.begin() ? ", products " : " and ") + form;
  return text;
}

void add_of_some_plans(const Report& r, Json& document) {
  if (!r.products.empty()) document["products"] = r.products;
  if (r.incast.bound > 0)
    document["incast"] = Json{{"most_bytes", r.incast.most}, {"bound_bytes", r.incast.bound}};
  if (!r.launches.empty()) document["launches"] = r.launches;
  if (!r.expert_load.empty()) document["expert_load"] = r.expert_load;
  if (!r.kv_ages.empty()) document["kv_ages"] = r.kv_ages;
  if (!r.reused) return;
  document["cache"] = r.reused->rule;
  document["computed_blocks"] = r.reused->computed_blocks;
  document["cache_changes"] = r.reused->changes;  // NaN and infinity become null
  if (!r.reused->negative_computed_blocks.empty()) {
    document["negative_computed_blocks"] = r.reused->negative_computed_blocks;
    document["negative_cache_changes"] = r.reused->negative_changes;
  }
  document["blocks_computed"] = r.reused->blocks_computed;
  document["blocks_reused"] = r.reused->blocks_reused;
  document["flops_saved"] = r.reused->flops_saved;
}

}  // namespace

Json json_of(const MemoryPeaks& peaks) {
  return {{"activations", peaks.activations},
          {"buffers", peaks.buffers},
          {"kv", peaks.kv},
          {"total", peaks.total},
          {"weights", peaks.weights}};
}

Json json_of(const StreamedExperts& experts) {
  return {{"all", experts.all},
          {"resident", experts.resident},
          {"hits", experts.hits},
          {"misses", experts.misses},
          {"bytes", experts.bytes}};
}

Json json_of(const Report::Rank& rank) {
  Json json{{"peak_bytes", json_of(rank.peak_bytes)},
            {"flops", rank.flops},
            {"sent_bytes", rank.sent_bytes}};
  if (rank.decode_flops > 0) {
    json["decode_peak_bytes"] = json_of(rank.decode_peak_bytes);
    json["decode_flops"] = rank.decode_flops;
  }
  if (rank.text_flops > 0) {
    json["text_peak_bytes"] = json_of(rank.text_peak_bytes);
    json["text_flops"] = rank.text_flops;
  }
  if (rank.streamed) json["streamed_experts"] = json_of(*rank.streamed);
  return json;
}

std::string to_json(const Report& r) {
  Json layers = Json::array();
  for (const auto& layer : r.layers)
    layers.push_back({{"block", layer.block},
                      {"mean_experts", layer.mean_experts},
                      {"tokens", layer.tokens},
                      {"assignments", layer.assignments},
                      {"assignments_changed", layer.assignments_changed},
                      {"ages", layer.ages},
                      {"oldest", layer.oldest}});
  Json traffic = Json::array();
  for (const auto& [key, t] : r.traffic)
    traffic.push_back(
        {{"operation", key.first},
         {"layer", key.second},
         {"messages", t.messages},
         {"bytes", t.bytes},
         {"wait_seconds", t.wait_seconds},
         {"overlap",
          t.flight_seconds > t.wait_seconds ? 1 - t.wait_seconds / t.flight_seconds : 0}});
  Json similarity = Json::array(), stale_errors = Json::array();
  for (const auto& s : r.similarity)
    similarity.push_back({{"layer", s.layer},
                          {"step", s.step},
                          {"same_experts", s.same_experts},
                          {"outputs", s.outputs}});
  for (const auto& e : r.stale_errors)
    stale_errors.push_back({{"layer", e.layer},
                            {"score", {e.lowest_score, e.highest_score}},
                            {"assignments", e.assignments},
                            {"error", e.error}});
  Json ranks = Json::array();
  for (const auto& rank : r.per_rank) ranks.push_back(json_of(rank));
  Json document{{"program", "Tessera"},
                {"version", r.version},
                {"model", r.model},
                {"plan", r.plan},
                {"device", r.device},
                {"precision", precision_of(r)},
                {"instruction_set", r.instruction_set},
                {"unit", r.unit},
                {"threads", r.threads},
                {"ranks", r.ranks},
                {"notes", r.notes},
                {"phase_seconds", seconds_of(r.phase_seconds)},
                {"step_seconds", r.step_seconds},
                {"forwards", r.forwards},
                {"flops", r.flops},
                {"peak_bytes", json_of(r.peak_bytes)},
                {"peak_resident_bytes", r.peak_resident_bytes},
                {"per_rank", ranks},
                {"kept_row_bytes", r.kept_row_bytes},
                {"experts_touched", layers},
                {"traffic", traffic}};
  add_of_some_plans(r, document);
  if (!similarity.empty()) document["similarity"] = similarity;
  if (!stale_errors.empty()) document["stale_errors"] = stale_errors;
  return document.dump(1, ' ', false, Json::error_handler_t::replace);
}

std::string to_json(const Inspection& i) {
  Json ranks = Json::array();
  for (const Inspection::Rank& r : i.ranks) {
    ranks.push_back({{"experts", r.experts},
                     {"tokens", r.tokens},
                     {"weights", r.weights},
                     {"activations", r.activations},
                     {"kv", r.kv},
                     {"buffers", r.buffers},
                     {"total", r.total},
                     {"flops", r.flops},
                     {"sent", r.sent}});
    if (r.decode > 0) ranks.back()["decode"] = r.decode;
    if (r.text > 0) ranks.back()["text"] = r.text;
  }
  Json components = Json::array();
  for (const Component& c : i.components)
    components.push_back({{"name", c.name},
                          {"type", c.type},
                          {"path", c.path},
                          {"parameters", c.parameters},
                          {"file_bytes", c.file_bytes},
                          {"downloaded", c.downloaded},
                          {"facts", c.facts}});
  Json run = i.answer_tokens > 0
                 ? Json{{"answer_tokens", i.answer_tokens}, {"block", i.block}}
                 : Json{{"width", i.width}, {"height", i.height}, {"sequences", i.sequences}};
  if (i.prompt_tokens > 0) run["prompt_tokens"] = i.prompt_tokens;
  const Json document{{"model", i.model},
                      {"pipeline", i.pipeline},
                      {"device", i.device},
                      {"components", components},
                      {"classes", i.class_names},
                      {"notes", i.notes},
                      {"run", run},
                      {"flops_per_step", i.flops_per_step},
                      {"memory", i.memory},
                      {"unfit", i.unfit},
                      {"seconds", i.seconds},
                      {"plan", i.plan},
                      {"ranks", ranks}};
  return document.dump(1, ' ', false, Json::error_handler_t::replace);
}

std::string to_json(const QuantiseResult& result) {
  Json matrices = Json::array();
  for (const QuantisedMatrix& matrix : result.each)
    matrices.push_back(
        {{"name", matrix.name}, {"bits", matrix.bits}, {"relative_error", matrix.relative_error}});
  const Json document{
      {"bytes_before", result.bytes_before}, {"bytes", result.bytes}, {"matrices", matrices}};
  return document.dump(1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera
