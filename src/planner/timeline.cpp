#include "planner/timeline.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "base/json.h"

namespace tessera::planner {
namespace {

using base::Json;

constexpr double kWidth = 1200, kLane = 26, kLeft = 60, kTop = 30;

int rank_count(const Simulation& run) { return static_cast<int>(run.rank_seconds.size()); }

const char* colour(const Span& span) {
  if (span.peer >= 0) return "#c77d1e";
  return span.name == "wait" ? "#d9d9d9" : "#2f6db3";
}

}  // namespace

std::string trace_of(const Simulation& run) {
  Json events = Json::array();
  for (int r = 0; r < rank_count(run); ++r) {
    events.push_back({{"ph", "M"},
                      {"pid", 0},
                      {"tid", 2 * r},
                      {"name", "thread_name"},
                      {"args", {{"name", fmt::format("rank {}", r)}}}});
    events.push_back({{"ph", "M"},
                      {"pid", 0},
                      {"tid", 2 * r + 1},
                      {"name", "thread_name"},
                      {"args", {{"name", fmt::format("messages of rank {}", r)}}}});
  }
  for (const Span& span : run.spans) {
    Json args = {{"step", span.step}};
    if (span.peer >= 0) args["to"] = span.peer;
    events.push_back({{"ph", "X"},
                      {"pid", 0},
                      {"tid", 2 * span.rank + (span.peer >= 0 ? 1 : 0)},
                      {"name", span.name},
                      {"ts", span.begin * 1e6},
                      {"dur", (span.end - span.begin) * 1e6},
                      {"args", std::move(args)}});
  }
  return Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump();
}

std::string image_of(const Simulation& run) {
  const int ranks = rank_count(run);
  const double height = kTop + kLane * ranks + 30;
  const double scale = run.seconds > 0 ? (kWidth - kLeft - 10) / run.seconds : 0;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" font-family=\"sans-serif\" font-size=\"11\">\n<text x=\"{2}\" y=\"18\">{3:.4g} s; "
      "blue: computes, grey: waits, orange: messages</text>\n",
      kWidth, height, kLeft, run.seconds);
  for (int r = 0; r < ranks; ++r)
    svg += fmt::format("<text x=\"4\" y=\"{}\">rank {}</text>\n", kTop + kLane * r + 14, r);
  for (const Span& span : run.spans) {
    const double x = kLeft + span.begin * scale, width = (span.end - span.begin) * scale;
    if (width < 0.05) continue;  // too narrow to see
    const bool message = span.peer >= 0;
    const double y = kTop + kLane * span.rank + (message ? 18 : 2);
    svg += fmt::format("<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"/>\n",
                       x, y, width, message ? 4 : 15, colour(span));
  }
  return svg + "</svg>\n";
}

}  // namespace tessera::planner
