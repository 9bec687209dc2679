#include "cluster/gather_reports.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#include "base/json.h"
#include "comm/collectives.h"

namespace tessera::cluster {
namespace {

using base::Json;

// A rank other than the first knows the decisions of the negative branch alone.
Json written(const Report::Reused& reuse) {
  return {reuse.flops_saved, reuse.negative_computed_blocks, reuse.negative_changes,
          reuse.blocks_computed, reuse.blocks_reused};
}

Report::Reused read_reused(const Json& json) {
  Report::Reused reuse;
  reuse.flops_saved = json.at(0);
  reuse.negative_computed_blocks = json.at(1).get<std::vector<std::vector<int>>>();
  for (const Json& change : json.at(2))
    reuse.negative_changes.push_back(change.is_null() ? std::numeric_limits<double>::quiet_NaN()
                                                      : change.get<double>());
  reuse.blocks_computed = json.at(3);
  reuse.blocks_reused = json.at(4);
  return reuse;
}

Json written(const Report& report) {
  Json layers = Json::array(), traffic = Json::array(), ranks = Json::array();
  for (const auto& l : report.layers)
    layers.push_back({l.block, l.mean_experts, l.tokens, l.assignments, l.assignments_changed,
                      l.ages, l.oldest});
  for (const auto& [key, t] : report.traffic)
    traffic.push_back({key.first, key.second, t.messages, t.bytes, t.wait_seconds, t.flight_seconds,
                       static_cast<int>(t.kind)});
  for (const Report::Rank& rank : report.per_rank) {
    const MemoryPeaks &peak = rank.peak_bytes, &text = rank.text_peak_bytes;
    Json streamed;  // null: none
    if (const auto& s = rank.streamed)
      streamed = {s->all, s->resident, s->hits, s->misses, s->bytes};
    ranks.push_back({peak.weights, peak.activations, peak.kv, peak.buffers, peak.total, rank.flops,
                     rank.sent_bytes, text.weights, text.activations, text.kv, text.buffers,
                     text.total, rank.text_flops, streamed});
  }
  return {{"layers", layers},
          {"traffic", traffic},
          {"ranks", ranks},
          {"ages", report.kv_ages},
          {"load", report.expert_load},
          {"kept", report.kept_row_bytes},
          {"incast", {report.incast.most, report.incast.bound}},
          {"launches", report.launches},
          {"reused", report.reused ? written(*report.reused) : Json()}};
}

Report read(const Json& json) {
  Report report;
  for (const Json& l : json.at("layers")) {
    Report::Layer layer;
    layer.block = l.at(0);
    layer.mean_experts = l.at(1);
    layer.tokens = l.at(2);
    layer.assignments = l.at(3);
    layer.assignments_changed = l.at(4);
    layer.ages = l.at(5).get<std::vector<int64_t>>();
    layer.oldest = l.at(6);
    report.layers.push_back(layer);
  }
  for (const Json& t : json.at("traffic"))
    report.traffic[{t.at(0), t.at(1)}] = {t.at(2), t.at(3), t.at(4), t.at(5),
                                          static_cast<TrafficKind>(t.at(6).get<int>())};
  for (const Json& r : json.at("ranks")) {
    Report::Rank rank{{r.at(0), r.at(1), r.at(2), r.at(3), r.at(4)}, r.at(5), r.at(6)};
    rank.text_peak_bytes = {r.at(7), r.at(8), r.at(9), r.at(10), r.at(11)};
    rank.text_flops = r.at(12);
    if (const Json& s = r.at(13); !s.is_null())
      rank.streamed = {s.at(0), s.at(1), s.at(2), s.at(3), s.at(4)};
    report.per_rank.push_back(rank);
  }
  report.kv_ages = json.at("ages").get<std::vector<int64_t>>();
  report.expert_load = json.at("load").get<std::vector<int64_t>>();
  report.kept_row_bytes = json.at("kept");
  report.incast = {json.at("incast").at(0), json.at("incast").at(1)};
  report.launches = json.at("launches").get<std::map<std::string, int64_t>>();
  if (const Json& reuse = json.at("reused"); !reuse.is_null()) report.reused = read_reused(reuse);
  return report;
}

void add_reused(const Report::Reused& rank, Report::Reused& sum) {
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(sum.negative_computed_blocks, rank.negative_computed_blocks);
  append(sum.negative_changes, rank.negative_changes);
  sum.flops_saved += rank.flops_saved;
  sum.blocks_computed += rank.blocks_computed;
  sum.blocks_reused += rank.blocks_reused;
}

}  // namespace

void add_counts(const std::vector<int64_t>& from, std::vector<int64_t>& to) {
  to.resize(std::max(to.size(), from.size()));
  for (size_t i = 0; i < from.size(); ++i) to[i] += from[i];
}

void add_report(const Report& rank, Report& sum) {
  if (sum.layers.size() < rank.layers.size()) sum.layers.resize(rank.layers.size());
  for (size_t i = 0; i < rank.layers.size(); ++i) {
    const Report::Layer& from = rank.layers[i];
    Report::Layer& to = sum.layers[i];
    to.block = std::max(to.block, from.block);  // 0 for a layer on another stage
    to.mean_experts += from.mean_experts;
    to.tokens += from.tokens;
    to.assignments += from.assignments;
    to.assignments_changed += from.assignments_changed;
    add_counts(from.ages, to.ages);
    to.oldest = std::max(to.oldest, from.oldest);
  }
  for (const auto& [key, from] : rank.traffic) {
    Report::Traffic& to = sum.traffic[key];
    to.messages += from.messages;
    to.bytes += from.bytes;
    to.wait_seconds += from.wait_seconds;
    to.flight_seconds += from.flight_seconds;
    to.kind = from.kind;
  }
  sum.per_rank.insert(sum.per_rank.end(), rank.per_rank.begin(), rank.per_rank.end());
  add_counts(rank.kv_ages, sum.kv_ages);
  add_counts(rank.expert_load, sum.expert_load);
  sum.kept_row_bytes = std::max(sum.kept_row_bytes, rank.kept_row_bytes);
  sum.incast = {std::max(sum.incast.most, rank.incast.most),
                std::max(sum.incast.bound, rank.incast.bound)};
  for (const auto& [kernel, count] : rank.launches) sum.launches[kernel] += count;
  if (sum.reused && rank.reused) add_reused(*rank.reused, *sum.reused);
}

void gather_reports(comm::Communicator& world, Report& report) {
  const std::string text = written(report).dump();
  const auto message =
      tensor::Tensor::empty({static_cast<int64_t>(text.size())}, tensor::DType::u8);
  std::memcpy(message.raw(), text.data(), text.size());
  const auto messages = comm::gather(world, 0, message, {"report", -1});
  for (int rank = 1; rank < static_cast<int>(messages.size()); ++rank) {
    const auto& bytes = messages[static_cast<size_t>(rank)];
    const std::string_view peer_text(static_cast<const char*>(bytes.raw()),
                                     static_cast<size_t>(bytes.bytes()));
    add_report(read(base::parse_json(peer_text, "report of rank " + std::to_string(rank))), report);
  }
}

}  // namespace tessera::cluster
