#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

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

/// Scores the rows of a file in order, and sums up their errors.
class Scorer {
 public:
  explicit Scorer(const std::function<void(const std::string&)>& line) : line_(line) {}
  void row(const Json& row);
  void ordering(const Json& row);
  void end();

 private:
  void skip(const std::string& id, const std::string& reason) {
    ++skipped_;
    line_(Json{{"id", id}, {"skipped", reason}}.dump());
  }
  const std::function<void(const std::string&)>& line_;
  PublishedRuns runs_;
  std::vector<double> latency_, ratio_;
  int scored_ = 0, skipped_ = 0, right_ = 0, orderings_ = 0, best_ = 0, firsts_ = 0;
};

std::string id_of(const Json& row) {
  const auto found = row.is_object() ? row.find("id") : row.end();
  const bool named = row.is_object() && found != row.end() && found->is_string();
  return named ? found->get<std::string>() : "";
}

// Works on a row; reports an unpredictable row with the reason.
template <class Work>
void guarded(const Work& work, const std::function<void(const std::string&)>& skip) {
  try {
    work();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::cancelled) throw;
    skip(error.what());
  }
}

void Scorer::row(const Json& row) {
  const std::string id = id_of(row);
  guarded(
      [&] {
        const Scored made = scored(runs_, row);
        Json said = {{"id", id}, {"predicted", nullptr}, {"measured", nullptr}};
        if (made.predicted) said["predicted"] = *made.predicted;
        if (made.measured) said["measured"] = *made.measured;
        said["error"] = made.error;
        ++scored_;
        if (made.kind == Scored::Kind::latency) latency_.push_back(std::fabs(made.error));
        if (made.kind == Scored::Kind::ratio) ratio_.push_back(std::fabs(made.error));
        if (made.kind == Scored::Kind::rank && made.measured == 1) {
          ++firsts_;
          if (*made.predicted <= 3) ++best_;
        }
        line_(said.dump());
      },
      [&](const std::string& reason) { skip(id, reason); });
}

void Scorer::ordering(const Json& row) {
  const std::string id = id_of(row);
  guarded(
      [&] {
        const Ordered made = ordered(runs_, row);
        ++orderings_;
        if (made.right) ++right_;
        line_(Json{{"id", id},
                   {"predicted", {made.left, made.right_side}},
                   {"measured", row.at("relation")},
                   {"error", made.right ? 0 : 1}}
                  .dump());
      },
      [&](const std::string& reason) { skip(id, reason); });
}

void Scorer::end() {
  line_(Json{{"median_latency_error", median(latency_)},
             {"median_ratio_error", median(ratio_)},
             {"orderings_right", right_},
             {"orderings", orderings_},
             {"best_in_first_three", best_},
             {"best_plans", firsts_},
             {"rows_scored", scored_},
             {"rows_skipped", skipped_}}
            .dump());
}

}  // namespace
}  // namespace planner

void score_predictions(const std::string& file, int threads,
                       const std::function<void(const std::string&)>& line,
                       const std::stop_token& stop) {
  (void)threads;
  const base::BindStop bind(stop);
  const base::Json published = base::read_json(file);
  require(published.is_object() && published.contains("rows") && published["rows"].is_array(),
          ErrorCode::usage, "`score` {}: expected an object with a list 'rows'", file);
  planner::Scorer scorer(line);
  std::set<std::string> ids;
  for (const base::Json& row : published["rows"]) {
    base::check_stop();
    const std::string id = planner::id_of(row);
    require(!id.empty() && ids.insert(id).second, ErrorCode::usage,
            "`score` {}: a row has the 'id' '{}'; expected one of its own", file, id);
    scorer.row(row);
  }
  if (published.contains("orderings") && published["orderings"].is_array())
    for (const base::Json& row : published["orderings"]) {
      base::check_stop();
      scorer.ordering(row);
    }
  scorer.end();
}

}  // namespace tessera
