#include "tessera/plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <set>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "tessera/words.h"

namespace tessera {
namespace {

/// An entry of a plan, with its reader and writer.
struct Entry {
  const char* name;
  std::function<void(Plan&, std::string_view)> read;
  std::function<std::string(const Plan&)> write;
};

constexpr int kLargest = 1 << 16;

// `entry`: the entry around `text`, for errors.
int whole(std::string_view name, std::string_view text, std::string_view entry, int lowest,
          int highest) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(error == std::errc() && end == text.data() + text.size() && value >= lowest &&
              value <= highest,
          ErrorCode::plan, "plan entry '{}={}': expected {} from {} to {}{}", name,
          entry.substr(0, 40), entry.size() == text.size() ? "a whole number" : "whole numbers",
          lowest, highest, entry.size() == text.size() ? "" : ", and + between them");
  return value;
}

Entry number(const char* name, int Plan::*field, int lowest = 1, int highest = kLargest) {
  return {name,
          [=](Plan& plan, std::string_view text) {
            plan.*field = whole(name, text, text, lowest, highest);
          },
          [=](const Plan& plan) { return std::to_string(plan.*field); }};
}

template <class Value>
Entry choice(const char* name, Value Plan::*field,
             const std::vector<std::pair<std::string_view, Value>>& values) {
  const auto read = [=](Plan& plan, std::string_view text) {
    std::string names;
    for (const auto& [word, value] : values) {
      if (word == text) {
        plan.*field = value;
        return;
      }
      names += (names.empty() ? "" : ", ") + std::string(word);
    }
    fail(ErrorCode::plan, "plan entry '{}={}': expected one of {}", name, text.substr(0, 40),
         names);
  };
  const auto write = [=](const Plan& plan) {
    for (const auto& [word, value] : values)
      if (value == plan.*field) return std::string(word);
    return std::string();
  };
  return {name, read, write};
}

constexpr std::array<std::pair<std::string_view, SyncLayers>, 4> kSyncRules{{
    {"none", SyncLayers::none},
    {"deep", SyncLayers::deep},
    {"shallow", SyncLayers::shallow},
    {"staggered", SyncLayers::staggered},
}};

// "0+3+5".
std::vector<int> numbers(std::string_view name, std::string_view text) {
  std::vector<int> values;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('+', at), text.size());
    values.push_back(whole(name, text.substr(at, end - at), text, 0, kLargest));
    at = end + 1;
  }
  return values;
}

void read_sync(Plan& plan, std::string_view text) {
  plan.sync_list.clear();
  for (const auto& [word, rule] : kSyncRules)
    if (word == text) {
      plan.sync = rule;
      return;
    }
  require(!text.empty() && text.find_first_not_of("0123456789+") == std::string_view::npos,
          ErrorCode::plan,
          "plan entry 'sync={}': expected none, deep, shallow, staggered or layers such as 0+3+5",
          text.substr(0, 40));
  plan.sync = SyncLayers::list;
  plan.sync_list = numbers("sync", text);
  std::sort(plan.sync_list.begin(), plan.sync_list.end());
  const auto twice = std::unique(plan.sync_list.begin(), plan.sync_list.end());
  plan.sync_list.erase(twice, plan.sync_list.end());
}

std::string write_sync(const Plan& plan) {
  for (const auto& [word, rule] : kSyncRules)
    if (rule == plan.sync) return std::string(word);
  return plan.sync == SyncLayers::list ? fmt::format("{}", fmt::join(plan.sync_list, "+")) : "";
}

void read_placement(Plan& plan, std::string_view text) {
  plan.placement_list.clear();
  plan.placement = text == "strided" ? ExpertPlacement::strided : ExpertPlacement::blocks;
  if (text == "blocks" || text == "strided") return;
  require(!text.empty() && text.find_first_not_of("0123456789+") == std::string_view::npos,
          ErrorCode::plan,
          "plan entry 'placement={}': expected blocks, strided or the rank of each expert such as "
          "0+0+1+1",
          text.substr(0, 40));
  plan.placement = ExpertPlacement::list;
  plan.placement_list = numbers("placement", text);
}

std::string write_placement(const Plan& plan) {
  if (plan.placement == ExpertPlacement::list)
    return fmt::format("{}", fmt::join(plan.placement_list, "+"));
  if (plan.placement == ExpertPlacement::strided) return "strided";
  return plan.placement == ExpertPlacement::blocks ? "blocks" : "";
}

constexpr std::array<std::pair<PlanAxis, int Plan::*>, 8> kAxes{{
    {PlanAxis::data, &Plan::data},
    {PlanAxis::cfg, &Plan::cfg},
    {PlanAxis::pipefusion, &Plan::pipefusion},
    {PlanAxis::ring, &Plan::ring},
    {PlanAxis::ulysses, &Plan::ulysses},
    {PlanAxis::distrifusion, &Plan::distrifusion},
    {PlanAxis::shard, &Plan::shard},
    {PlanAxis::tensor, &Plan::tensor},
}};

void read_stages(Plan& plan, std::string_view text) {
  plan.stages.clear();
  if (text == "balanced") return;
  require(!text.empty() && text.find_first_not_of("0123456789+") == std::string_view::npos,
          ErrorCode::plan,
          "plan entry 'stages={}': expected balanced, or the blocks of each stage such as 19+38",
          text.substr(0, 80));
  plan.stages = numbers("stages", text);
}

std::string write_stages(const Plan& plan) {
  return plan.stages.empty() ? "balanced" : fmt::format("{}", fmt::join(plan.stages, "+"));
}

void read_vae(Plan& plan, std::string_view text) {
  plan.vae_apart = text.starts_with('+');
  plan.vae = whole("vae", text.substr(plan.vae_apart ? 1 : 0), text, 1, kLargest);
}

std::string write_vae(const Plan& plan) {
  return (plan.vae_apart ? "+" : "") + std::to_string(plan.vae);
}

std::string order_of(const Plan& plan) {
  std::vector<std::string> names;  // duplicates and unknown names, too: read_order refuses them
  for (const PlanAxis axis : plan.order) names.emplace_back(word_of(axis));
  for (const Axis& axis : axes_of(plan))
    if (std::count(names.begin(), names.end(), axis.name) == 0) names.push_back(axis.name);
  return fmt::format("{}", fmt::join(names, "+"));
}

void read_order(Plan& plan, std::string_view text) {
  plan.order.clear();
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('+', at), text.size());
    const std::string_view name = text.substr(at, end - at);
    const auto it = std::find_if(kAxes.begin(), kAxes.end(),
                                 [&](const auto& axis) { return name == word_of(axis.first); });
    require(it != kAxes.end() && std::count(plan.order.begin(), plan.order.end(), it->first) == 0,
            ErrorCode::plan,
            "plan entry 'order={}': expected axes, each once and outermost first, such as {}",
            text.substr(0, 80), order_of({}));
    plan.order.push_back(it->first);
    at = end + 1;
  }
  if (order_of(plan) == order_of({})) plan.order.clear();
}

const std::vector<Entry>& entries() {
  using E = ExpertSchedule;
  static const std::vector<Entry> all{
      number("data", &Plan::data),
      number("cfg", &Plan::cfg, 1, 2),
      number("pipefusion", &Plan::pipefusion),
      number("patches", &Plan::patches, 0),
      choice<PatchShape>("cut", &Plan::cut,
                         {{"runs", PatchShape::runs}, {"bands", PatchShape::bands}}),
      {"stages", read_stages, write_stages},
      number("ring", &Plan::ring),
      number("ulysses", &Plan::ulysses),
      number("tensor", &Plan::tensor),
      number("distrifusion", &Plan::distrifusion),
      number("shards", &Plan::shards, 0),
      number("shard", &Plan::shard),
      number("expert", &Plan::expert),
      {"vae", read_vae, write_vae},
      number("warmup", &Plan::warmup),
      number("cooldown", &Plan::cooldown, 0),
      choice<E>("schedule", &Plan::schedule,
                {{"sync", E::sync},
                 {"interweaved", E::interweaved},
                 {"displaced", E::displaced},
                 {"adaptive", E::adaptive},
                 {"staggered-batch", E::staggered_batch}}),
      number("budget", &Plan::budget, 0, 100),
      {"sync", read_sync, write_sync},
      number("sync-every", &Plan::sync_every, 0),
      choice<KeptSlot>("conditional", &Plan::conditional,
                       {{"all", KeptSlot::all},
                        {"low", KeptSlot::low},
                        {"high", KeptSlot::high},
                        {"random", KeptSlot::random}}),
      number("stride", &Plan::stride),
      choice<bool>("conditional-layers", &Plan::conditional_all_layers,
                   {{"all", true}, {"async", false}}),
      choice<StaleScores>("scores", &Plan::scores,
                          {{"stale", StaleScores::stale}, {"latest", StaleScores::latest}}),
      choice<MoeForm>("moe", &Plan::moe, {{"bulk", MoeForm::bulk}, {"fused", MoeForm::fused}}),
      {"placement", read_placement, write_placement},
      {"order", read_order, order_of},
  };
  return all;
}

std::vector<int> divisors(int n) {
  std::vector<int> values;
  for (int d = 1; d <= n; ++d)
    if (n % d == 0) values.push_back(d);
  return values;
}

std::string known_names() {
  std::string names;
  for (const Entry& entry : entries())
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
  return names;
}

std::vector<std::string> fused_problems(const Plan& plan) {
  std::vector<std::string> messages;
  if (plan.moe == MoeForm::bulk) return messages;
  if (plan.expert == 1)
    messages.push_back(
        "moe=fused moves rows between the ranks of expert=N; add it, or leave out moe=");
  if (plan.schedule == ExpertSchedule::staggered_batch)
    messages.push_back(
        "moe=fused takes a rank's sequences through a layer together, and "
        "schedule=staggered-batch in halves; leave it out, or use moe=bulk");
  return messages;
}

std::vector<std::string> patch_problems(const Plan& plan) {
  std::vector<std::string> messages;
  const int patches = plan.patch_count();
  const bool passes = patches * plan.pipefusion > 1;  // passes are cut into pieces
  if (plan.schedule == ExpertSchedule::staggered_batch && passes)
    messages.push_back(
        "schedule=staggered-batch cuts a rank's sequences in two, and patches= and pipefusion= "
        "take "
        "all of them through a stage; leave it out, or them");
  if (!plan.stages.empty() && std::ssize(plan.stages) != plan.pipefusion)
    messages.push_back(
        fmt::format("stages={} names {} stage{}, pipefusion={} has {}; name each, or leave it out",
                    write_stages(plan), plan.stages.size(), plan.stages.size() > 1 ? "s" : "",
                    plan.pipefusion, plan.pipefusion));
  if (std::count(plan.stages.begin(), plan.stages.end(), 0) > 0)
    messages.push_back(
        fmt::format("stages={}: each stage has a block at least; give it one, or leave stages= out",
                    write_stages(plan)));
  if (plan.cut != PatchShape::runs && patches == 1)
    messages.push_back(
        "cut= says what a patch is, and there is one; add patches=, or leave out cut=");
  return messages;
}

// Problems of keys and values from other shards, which are a step old.
std::vector<std::string> shard_problems(const Plan& plan) {
  std::vector<std::string> messages;
  const char* const axis = plan.distrifusion > 1 ? "distrifusion=" : "shards=";
  if (plan.shard_count() % plan.distrifusion != 0)
    messages.push_back(fmt::format(
        "shards={}: each rank of distrifusion={} has as many of them; use a multiple of {}, or "
        "leave shards= out",
        plan.shards, plan.distrifusion, plan.distrifusion));
  if (plan.shard_count() == 1) return messages;
  if (plan.patch_count() * plan.pipefusion > 1)
    messages.push_back(
        fmt::format("patches= and pipefusion= read old keys and values of other patches, and {} "
                    "those of other shards; leave it out, or them",
                    axis));
  if (plan.ring * plan.ulysses > 1)
    messages.push_back(
        fmt::format("ulysses= and ring= cut the tokens of samples, and so does {}; leave it out, "
                    "or them",
                    axis));
  if (plan.schedule == ExpertSchedule::staggered_batch)
    messages.push_back(
        fmt::format("schedule=staggered-batch cuts a rank's sequences in two, and keys and values "
                    "of {} belong to all of them; leave one of the two out",
                    axis));
  return messages;
}

// Problems of the placement of experts.
std::vector<std::string> expert_problems(const Plan& plan) {
  std::vector<std::string> messages;
  // Ranks with different tokens; the ranks of a shard= group share their weights.
  const int different = plan.data * plan.cfg * plan.ring * plan.ulysses * plan.distrifusion;
  if (different % plan.expert != 0 && plan.tensor == 1)
    messages.push_back(fmt::format(
        "expert={} does not divide the {} rank{} that hold{} different tokens{}", plan.expert,
        different, different > 1 ? "s" : "", different > 1 ? "" : "s",
        different > 1 ? fmt::format("; use one of {}", fmt::join(divisors(different), ", "))
        : plan.pipefusion > 1
            ? fmt::format(" (stages hand the same ones on); add data={0} or ulysses={0}",
                          plan.expert)
            : fmt::format("; add data={0} or ulysses={0}", plan.expert)));
  if (plan.placement != ExpertPlacement::blocks && plan.expert == 1)
    messages.push_back("placement= deals experts out to the ranks of expert=N; add it");
  for (int rank : plan.placement_list)
    if (rank >= plan.expert && plan.expert > 1) {
      messages.push_back(
          fmt::format("placement= names rank {}; choose from the ranks 0 to {} of expert={}", rank,
                      plan.expert - 1, plan.expert));
      break;
    }
  return messages;
}

}  // namespace

std::vector<Axis> axes_of(const Plan& plan) {
  std::vector<Axis> axes;
  const auto add = [&](const auto& axis) {
    axes.push_back({word_of(axis.first), plan.*axis.second});
  };
  for (const PlanAxis first : plan.order)
    for (const auto& axis : kAxes)
      if (axis.first == first) add(axis);
  for (const auto& axis : kAxes)
    if (std::count(plan.order.begin(), plan.order.end(), axis.first) == 0) add(axis);
  return axes;
}

Plan parse_plan(const std::string& text) {
  Plan plan;
  std::set<std::string_view> names;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    const size_t equals = item.find('=');
    require(equals != std::string_view::npos, ErrorCode::plan,
            "plan entry '{}' has no value; write name=value with one of: {}", item.substr(0, 40),
            known_names());
    const std::string_view name = item.substr(0, equals);
    require(names.insert(name).second, ErrorCode::plan, "plan entry '{}' stands twice",
            name.substr(0, 40));
    const auto entry = std::find_if(entries().begin(), entries().end(),
                                    [&](const Entry& e) { return e.name == name; });
    require(entry != entries().end(), ErrorCode::plan, "unknown plan entry '{}'; known are: {}",
            name.substr(0, 40), known_names());
    entry->read(plan, item.substr(equals + 1));
  }
  if (plan.expert > 1 && plan.world() == 1) plan.data = plan.expert;
  return plan;
}

std::string to_string(const Plan& plan) {
  const Plan usual;
  std::string text;
  for (const Entry& entry : entries()) {
    const std::string value = entry.write(plan);
    if (value != entry.write(usual))
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", entry.name, value);
  }
  return text;
}

void check_values(const Plan& plan) {
  Plan copy;
  try {
    for (const Entry& entry : entries()) entry.read(copy, entry.write(plan));
  } catch (const Error& e) {
    fail(ErrorCode::usage, "{}", e.what());
  }
}

std::vector<std::string> problems(const Plan& plan, int ranks) {
  std::vector<std::string> messages;
  try {
    check_values(plan);
  } catch (const Error& e) {
    return {e.what()};
  }
  if (plan.world() > kMostRanks || plan.ranks() > kMostRanks)
    return {fmt::format("the plan '{}' needs more than {} ranks", to_string(plan), kMostRanks)};
  if (!plan.vae_apart && plan.vae > plan.world())
    messages.push_back(fmt::format(
        "vae={}: that many of the plan's ranks decode an image, and it has {}; use vae={} or less, "
        "vae=+{} for ranks of their own, or add an axis, as ulysses={}",
        plan.vae, plan.world(), plan.world(), plan.vae, plan.vae));
  else if (plan.ranks() != ranks && to_string(plan).empty())
    messages.push_back(
        fmt::format("without a plan one rank does all, and {0} were given: add `plan`, such as "
                    "data={0}, or start one rank",
                    ranks));
  else if (plan.ranks() != ranks)
    messages.push_back(fmt::format(
        "the plan '{0}' needs {1} rank{3}, {2} {4} given: start {1} (`ranks` {1})", to_string(plan),
        plan.ranks(), ranks, plan.ranks() == 1 ? "" : "s", ranks == 1 ? "was" : "were"));
  const bool cut = plan.tensor > 1;
  if (cut && (plan.expert > 1 || plan.shard_count() > 1))
    messages.push_back(fmt::format(
        "tensor= goes with data=, cfg=, ring= and ulysses=; leave out expert= and {}=, or tensor=",
        plan.shard_count() > plan.distrifusion ? "shards" : "distrifusion"));
  if (cut && (plan.schedule != ExpertSchedule::sync || plan.conditional != KeptSlot::all))
    messages.push_back(
        "under tensor= no row of experts travels; leave out schedule= and conditional=");
  if (plan.synchronous() && plan.sync != SyncLayers::none)
    messages.push_back(
        "sync= chooses layers of a stale schedule; add schedule=interweaved, displaced or "
        "adaptive");
  const bool adaptive = plan.schedule == ExpertSchedule::adaptive;
  if (adaptive && plan.conditional != KeptSlot::all)
    messages.push_back("schedule=adaptive chooses the assignments itself; leave out conditional=");
  if (plan.shard > 1 && plan.schedule == ExpertSchedule::staggered_batch)
    messages.push_back(
        "schedule=staggered-batch runs each block twice, and shard= gathers it once; leave one of "
        "the two out");
  if (plan.shard > 1 && plan.schedule == ExpertSchedule::displaced)
    messages.push_back(
        "schedule=displaced computes experts a step later, and shard= lets their weights go after "
        "each block; use schedule=interweaved, or leave out shard=");
  for (const auto& part :
       {shard_problems(plan), expert_problems(plan), patch_problems(plan), fused_problems(plan)})
    messages.insert(messages.end(), part.begin(), part.end());
  if (!adaptive && plan.budget != Plan{}.budget)
    messages.push_back(
        "budget= holds for the assignments of schedule=adaptive; add it, or leave out budget=");
  return messages;
}

}  // namespace tessera
