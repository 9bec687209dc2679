#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/fail.h"
#include "base/json.h"
#include "base/stop.h"
#include "models/published_models.h"
#include "planner/published_case.h"
#include "planner/score_rows.h"
#include "tessera/prediction.h"

namespace tessera {
namespace planner {
namespace {

using base::Json;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::string id_of(const Json& row) {
  const auto found = row.is_object() ? row.find("id") : row.end();
  const bool named = row.is_object() && found != row.end() && found->is_string();
  return named ? found->get<std::string>() : "";
}

/// A line of the result adds a row or an ordering to the summary.
struct Line {
  Json said;
  std::optional<Scored> row;
  std::optional<Ordered> ordering;
};

Line row_line(PublishedRuns& runs, const Json& row) {
  const Scored made = scored(runs, row);
  Json said = {{"id", id_of(row)}, {"predicted", nullptr}, {"measured", nullptr}};
  if (made.predicted) said["predicted"] = *made.predicted;
  if (made.measured) said["measured"] = *made.measured;
  said["error"] = made.error;
  return {std::move(said), made, {}};
}

Line ordering_line(PublishedRuns& runs, const Json& row) {
  const Ordered made = ordered(runs, row);
  return {{{"id", id_of(row)},
           {"predicted", {made.left, made.right_side}},
           {"measured", row.at("relation")},
           {"error", made.right ? 0 : 1}},
          {},
          made};
}

/// Scores the rows of a file on several threads. Each thread takes all rows of a model and a size,
/// so that no plan is run dry twice; lines are said in the order of the file.
class Scorer {
 public:
  Scorer(const std::vector<std::pair<Json, bool>>& rows,
         const std::function<void(const std::string&)>& line)
      : rows_(rows), line_(line), lines_(rows.size()) {
    std::map<std::string, size_t> known;
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto [at, first] = known.try_emplace(subject_of(rows[i].first), groups_.size());
      if (first) groups_.emplace_back();
      groups_[at->second].push_back(i);
    }
    // The largest group comes first, so no large group is left alone at the end.
    std::stable_sort(groups_.begin(), groups_.end(),
                     [](const auto& a, const auto& b) { return a.size() > b.size(); });
  }
  void run(int threads, const std::stop_token& stop);
  void end();

 private:
  static std::string subject_of(const Json& row) {
    std::string key;
    for (const char* field : {"model", "width", "height", "side_px", "frames", "steps"})
      key += (row.contains(field) ? row.at(field).dump() : "") + "/";
    return key;
  }
  void work(const std::stop_token& stop);
  void score(PublishedRuns& runs, size_t i);
  const std::vector<std::pair<Json, bool>>& rows_;
  const std::function<void(const std::string&)>& line_;
  std::vector<std::vector<size_t>> groups_;
  std::mutex mutex_;
  size_t next_ = 0, said_ = 0;  // groups taken; lines said
  std::vector<std::optional<Line>> lines_;
  std::exception_ptr failure_;
};

// A row without a prediction is reported as skipped, with the reason.
void Scorer::score(PublishedRuns& runs, size_t i) {
  const auto& [row, is_ordering] = rows_[i];
  Line made;
  try {
    made = is_ordering ? ordering_line(runs, row) : row_line(runs, row);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::cancelled) throw;
    made.said = {{"id", id_of(row)}, {"skipped", error.what()}};
  }
  const std::lock_guard lock(mutex_);
  lines_[i] = std::move(made);
  for (; said_ < lines_.size() && lines_[said_]; ++said_) line_(lines_[said_]->said.dump());
}

void Scorer::work(const std::stop_token& stop) {
  try {
    const base::BindStop bind(stop);
    for (;;) {
      size_t group = 0;
      {
        const std::lock_guard lock(mutex_);
        if (failure_ || next_ == groups_.size()) return;
        group = next_++;
      }
      PublishedRuns runs;
      for (const size_t i : groups_[group]) {
        base::check_stop();
        score(runs, i);
      }
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void Scorer::run(int threads, const std::stop_token& stop) {
  {
    std::vector<std::jthread> others;
    for (int t = 1; t < threads && t < static_cast<int>(groups_.size()); ++t)
      others.emplace_back([&] { work(stop); });
    work(stop);
  }
  if (failure_) std::rethrow_exception(failure_);
}

void Scorer::end() {
  std::vector<double> latency, ratio;
  int scored = 0, skipped = 0, right = 0, orderings = 0, best = 0, firsts = 0;
  for (const auto& line : lines_) {
    skipped += !line->row && !line->ordering;
    orderings += line->ordering.has_value();
    right += line->ordering && line->ordering->right;
    if (!line->row) continue;
    ++scored;
    const Scored& made = *line->row;
    if (made.kind == Scored::Kind::latency) latency.push_back(std::fabs(made.error));
    if (made.kind == Scored::Kind::ratio) ratio.push_back(std::fabs(made.error));
    if (made.kind != Scored::Kind::rank || made.measured != 1) continue;
    ++firsts;
    best += *made.predicted <= 3;
  }
  line_(Json{{"median_latency_error", median(latency)},
             {"median_ratio_error", median(ratio)},
             {"orderings_right", right},
             {"orderings", orderings},
             {"best_in_first_three", best},
             {"best_plans", firsts},
             {"rows_scored", scored},
             {"rows_skipped", skipped}}
            .dump());
}

}  // namespace
}  // namespace planner

void score_predictions(const std::string& file, int threads,
                       const std::function<void(const std::string&)>& line,
                       const std::stop_token& stop) {
  const base::BindStop bind(stop);
  const base::Json published = base::read_json(file);
  require(published.is_object() && published.contains("rows") && published["rows"].is_array(),
          ErrorCode::usage, "`score` {}: expected an object with a list 'rows'", file);
  std::vector<std::pair<base::Json, bool>> rows;  // true marks an ordering
  std::set<std::string> ids;
  for (const base::Json& row : published["rows"]) {
    const std::string id = planner::id_of(row);
    require(!id.empty() && ids.insert(id).second, ErrorCode::usage,
            "`score` {}: a row has the 'id' '{}'; expected one of its own", file, id);
    rows.emplace_back(row, false);
  }
  if (published.contains("orderings") && published["orderings"].is_array())
    for (const base::Json& row : published["orderings"]) {
      require(row.is_object(), ErrorCode::usage,
              "`score` {}: an ordering is {}; expected an object", file, row.dump());
      rows.emplace_back(row, true);
    }
  planner::Scorer scorer(rows, line);
  scorer.run(threads > 0 ? threads : static_cast<int>(std::thread::hardware_concurrency()), stop);
  scorer.end();
}

}  // namespace tessera
