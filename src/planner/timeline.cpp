#include "planner/timeline.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/fail.h"
#include "base/json.h"

namespace tessera::planner {
namespace {

using base::Json;

constexpr double kWidth = 1200, kLane = 26, kLinkLane = 14, kLeft = 80, kTop = 30;

int rank_count(const Simulation& run) { return static_cast<int>(run.rank_seconds.size()); }

const char* colour(const Span& span) {
  if (span.link >= 0) return "#7a9a3c";
  if (span.peer >= 0) return "#c77d1e";
  return span.name == "wait" ? "#d9d9d9" : "#2f6db3";
}

// Returns the lanes of links in their order; a link without bytes has no lane.
std::map<int, int> link_lanes(const Simulation& run) {
  std::map<int, int> lanes;
  for (const Span& span : run.spans)
    if (span.link >= 0) lanes[span.link] = 0;
  int next = 0;
  for (auto& [link, lane] : lanes) lane = next++;
  return lanes;
}

Json named(const char* what, int process, int lane, const std::string& name) {
  return {{"ph", "M"}, {"pid", process}, {"tid", lane}, {"name", what}, {"args", {{"name", name}}}};
}

}  // namespace

std::string trace_of(const Simulation& run, TimelineOf of) {
  const bool measured = of == TimelineOf::measurement;
  const int process = measured ? 1 : 0, ranks = rank_count(run);
  const std::map<int, int> links = link_lanes(run);
  Json events = Json::array();
  events.push_back(named("process_name", process, 0, measured ? "measured" : "predicted"));
  for (int r = 0; r < ranks; ++r) {
    events.push_back(named("thread_name", process, 2 * r, fmt::format("rank {}", r)));
    events.push_back(
        named("thread_name", process, 2 * r + 1, fmt::format("messages of rank {}", r)));
  }
  for (const auto& [link, lane] : links)
    events.push_back(named("thread_name", process, 2 * ranks + lane,
                           "link " + run.links.at(static_cast<size_t>(link))));
  for (const Span& span : run.spans) {
    Json args = {{"step", span.step}};
    if (span.peer >= 0) args["to"] = span.peer;
    if (span.link >= 0) args["from"] = span.rank;
    const int lane =
        span.link >= 0 ? 2 * ranks + links.at(span.link) : 2 * span.rank + (span.peer >= 0 ? 1 : 0);
    events.push_back({{"ph", "X"},
                      {"pid", process},
                      {"tid", lane},
                      {"name", span.name},
                      {"ts", span.begin * 1e6},
                      {"dur", (span.end - span.begin) * 1e6},
                      {"args", std::move(args)}});
  }
  return Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump();
}

std::string image_of(const Simulation& run) {
  const int ranks = rank_count(run);
  const std::map<int, int> links = link_lanes(run);
  const double height = kTop + kLane * ranks + kLinkLane * double(links.size()) + 30;
  const double scale = run.seconds > 0 ? (kWidth - kLeft - 10) / run.seconds : 0;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" font-family=\"sans-serif\" font-size=\"11\">\n<text x=\"{2}\" y=\"18\">{3:.4g} s; "
      "blue: computes, grey: waits, orange: messages, green: links</text>\n",
      kWidth, height, kLeft, run.seconds);
  for (int r = 0; r < ranks; ++r)
    svg += fmt::format("<text x=\"4\" y=\"{}\">rank {}</text>\n", kTop + kLane * r + 14, r);
  const double below = kTop + kLane * ranks;
  for (const auto& [link, lane] : links)
    svg += fmt::format("<text x=\"4\" y=\"{}\">{}</text>\n", below + kLinkLane * lane + 11,
                       run.links.at(static_cast<size_t>(link)));
  for (const Span& span : run.spans) {
    const double x = kLeft + span.begin * scale, width = (span.end - span.begin) * scale;
    if (width < 0.05) continue;  // so short a span is invisible
    const bool message = span.peer >= 0, link = span.link >= 0;
    const double y = link ? below + kLinkLane * links.at(span.link) + 3
                          : kTop + kLane * span.rank + (message ? 18 : 2);
    svg += fmt::format("<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"/>\n",
                       x, y, width,
                       link      ? 9
                       : message ? 4
                                 : 15,
                       colour(span));
  }
  return svg + "</svg>\n";
}

}  // namespace tessera::planner
