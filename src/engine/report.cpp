#include "tessera/report.h"

#include <nlohmann/json.hpp>

namespace tessera {

using Json = nlohmann::ordered_json;

std::string to_json(const Report& r) {
  Json layers = Json::array();
  for (const auto& layer : r.layers)
    layers.push_back({{"block", layer.block},
                      {"mean_experts", layer.mean_experts},
                      {"tokens", layer.tokens}});
  const Json document{{"version", r.version},
                      {"model", r.model},
                      {"plan", r.plan},
                      {"device", r.device},
                      {"precision", r.precision},
                      {"instruction_set", r.instruction_set},
                      {"threads", r.threads},
                      {"ranks", r.ranks},
                      {"phase_seconds", r.phase_seconds},
                      {"step_seconds", r.step_seconds},
                      {"forwards", r.forwards},
                      {"flops", r.flops},
                      {"peak_bytes", r.peak_bytes},
                      {"peak_resident_bytes", r.peak_resident_bytes},
                      {"experts_touched", layers}};
  return document.dump(1, ' ', false, Json::error_handler_t::replace);
}

std::string to_json(const Inspection& i) {
  Json components = Json::array();
  for (const Component& c : i.components)
    components.push_back({{"name", c.name},
                          {"type", c.type},
                          {"path", c.path},
                          {"parameters", c.parameters},
                          {"file_bytes", c.file_bytes},
                          {"facts", c.facts}});
  const Json document{{"model", i.model},
                      {"pipeline", i.pipeline},
                      {"components", components},
                      {"classes", i.class_names},
                      {"run", {{"width", i.width}, {"height", i.height}, {"rows", i.rows}}},
                      {"flops_per_step", i.flops_per_step},
                      {"memory", i.memory}};
  return document.dump(1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera
