#include "sample/step_lists.h"

#include <fmt/ranges.h>

#include <cmath>
#include <limits>

#include "base/fail.h"
#include "sample/noise_schedule.h"

namespace tessera::sample {
namespace {

std::string classes_with(bool timesteps) {
  std::vector<std::string> names;
  for (const Scheduler& s : schedulers())
    if (timesteps ? s.timesteps != Timesteps::none : s.sigmas != Sigmas::none)
      names.emplace_back(s.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

void check_descending(const char* name, const std::vector<double>& values, double most) {
  double before = std::numeric_limits<double>::infinity();
  for (const double value : values) {
    require(std::isfinite(value) && value >= 0 && value <= most, ErrorCode::usage,
            "`{}`: {} is no place of this schedule; expected numbers from {} down to 0", name,
            value, most);
    require(value < before, ErrorCode::usage,
            "`{}`: {} stands behind {}; expected each number to be smaller than the one before",
            name, value, before);
    before = value;
  }
}

void check_lists_of(const Scheduler& scheduler, const std::vector<double>& timesteps,
                    const std::vector<double>& sigmas) {
  require(timesteps.empty() || sigmas.empty(), ErrorCode::usage,
          "`timesteps` and `sigmas`: give one of them");
  for (const bool times : {true, false}) {
    const bool has_list = times ? !timesteps.empty() : !sigmas.empty();
    const bool takes_list =
        times ? scheduler.timesteps != Timesteps::none : scheduler.sigmas != Sigmas::none;
    require(!has_list || takes_list, ErrorCode::usage,
            "`{}`: a {} takes no such list; those that do are {}", times ? "timesteps" : "sigmas",
            scheduler.name, classes_with(times));
  }
}

}  // namespace

int listed_steps(const std::string& class_name, const std::vector<double>& timesteps,
                 const std::vector<double>& sigmas) {
  if (timesteps.empty() && sigmas.empty()) return 0;
  const size_t count = timesteps.size() + sigmas.size();
  for (const Scheduler& scheduler : schedulers()) {
    if (class_name != scheduler.name) continue;
    check_lists_of(scheduler, timesteps, sigmas);
    const bool place = !sigmas.empty() && scheduler.sigmas == Sigmas::places;
    require(count >= (place ? 2 : 1) && count <= 100'000, ErrorCode::usage,
            "`{}`: {} numbers; expected {} to 100000{}", sigmas.empty() ? "timesteps" : "sigmas",
            count, place ? 2 : 1, place ? ", the last of them the end of the last step" : "");
    return static_cast<int>(count) - (place ? 1 : 0);
  }
  return static_cast<int>(count);  // make_sampler refuses the class
}

void check_step_lists(const Scheduler& scheduler, const base::ConfigReader& reader,
                      const ScheduleRequest& request) {
  if (request.timesteps.empty() && request.sigmas.empty()) return;
  check_lists_of(scheduler, request.timesteps, request.sigmas);
  const char* const name = request.sigmas.empty() ? "timesteps" : "sigmas";
  const bool euler_flow = scheduler.flow == FlowPath::always;
  const bool flow =
      euler_flow || (scheduler.flow == FlowPath::by_flag && reader.flag("use_flow_sigmas", false));
  const bool spreads =
      read_sharded(reader) != Spread::even || (!flow && reader.flag("use_lu_lambdas", false));
  require(euler_flow || !spreads || (scheduler.sigmas == Sigmas::places && !request.sigmas.empty()),
          ErrorCode::usage,
          "`{}`: {} spreads sigmas itself (use_karras_sigmas or the like); leave the list out",
          name, reader.where());
  require(request.timesteps.empty() || euler_flow || !flow, ErrorCode::usage,
          "`timesteps`: a {} with use_flow_sigmas takes none; take flow-euler or unipc with "
          "`sigmas`",
          scheduler.name);
  require(request.sigmas.empty() || scheduler.sigmas == Sigmas::places || flow, ErrorCode::usage,
          "`sigmas`: a {} takes them with use_flow_sigmas only", scheduler.name);
  const auto train = static_cast<double>(reader.integer("num_train_timesteps", 1000, 2, 1000000));
  const bool whole = scheduler.timesteps == Timesteps::whole;
  check_descending(name, request.timesteps, whole ? train - 1 : train);
  check_descending(name, request.sigmas, flow ? 1 : 1e6);
  require(request.sigmas.empty() || euler_flow || scheduler.sigmas == Sigmas::places ||
              request.sigmas.back() > 0,
          ErrorCode::usage, "`sigmas`: the last is 0, which a {} adds itself; leave it out",
          scheduler.name);
}

std::vector<int64_t> whole_timesteps(const std::vector<double>& timesteps, int train_steps) {
  std::vector<double> cut;
  for (const double t : timesteps) cut.push_back(std::trunc(t));
  check_descending("timesteps", cut, train_steps - 1);
  return {cut.begin(), cut.end()};
}

}  // namespace tessera::sample
