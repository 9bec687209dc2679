#include "parallel/language.h"

#include <limits>
#include <numeric>

#include "base/fail.h"
#include "parallel/experts/scheduled.h"
#include "parallel/sequence/displaced_kv.h"
#include "parallel/sequence/split_tokens.h"
#include "parallel/tensor/narrow_experts.h"

namespace tessera::parallel {

std::vector<std::string> language_problems(const Plan& plan, const nn::Geometry& geometry) {
  std::vector<std::string> found;
  if (plan.distrifusion > 1)
    found.push_back("distrifusion= is for pictures; language models take expert=N or tensor=N");
  if (plan.schedule != ExpertSchedule::sync || plan.stale() || plan.warmup > 1 ||
      plan.sync_every > 0)
    found.push_back(
        "nothing is stale between the passes of a language model; leave out schedule=, "
        "conditional=, warmup= and sync-every=");
  if (plan.expert > 1 && plan.tensor > 1)
    found.push_back("expert= and tensor= do not go together yet; give one of them");
  if (plan.data != plan.expert)
    found.push_back(fmt::format(
        "data={}: prompts are not spread over ranks; give expert=N or tensor=N alone", plan.data));
  if (plan.expert > 1 && geometry.experts.empty())
    found.push_back("expert=: the model has no experts");
  for (const auto& some : {placement_problems(plan, geometry), tensor_problems(plan, geometry)})
    found.insert(found.end(), some.begin(), some.end());
  return found;
}

nn::Portion language_portion(const Plan& plan, const nn::Geometry& geometry, int rank) {
  nn::Portion portion{{0, geometry.blocks}, true, true};
  portion.shard = {plan.tensor > 1 ? rank : 0, plan.tensor};
  if (plan.expert == 1 || geometry.experts.empty()) return portion;
  for (int owner : expert_owners(plan, geometry.experts.front().experts))
    portion.experts.push_back(owner == rank);
  return portion;
}

LanguageAssembly assemble_language(const nn::TokenModel& model, const Plan& plan,
                                   const nn::SelectionRule& rule,
                                   const std::vector<int64_t>& lengths, comm::Communicator* world) {
  const auto found = language_problems(plan, model.geometry());
  require(found.empty(), ErrorCode::plan, "the plan cannot run: {}", fmt::join(found, "; "));
  require(plan.world() == (world ? world->size() : 1), ErrorCode::plan,
          "the plan '{}' needs {} ranks, there are {}", to_string(plan), plan.world(),
          world ? world->size() : 1);
  LanguageAssembly made;
  const std::vector<nn::Range> rows = nn::rows_of_lengths(lengths);
  made.policy = std::make_shared<nn::SelectionPolicy>(rule);
  std::unique_ptr<nn::ExpertBackend> backend;
  if (plan.expert > 1) {
    const auto runs = std::make_shared<TokenRuns>(*world, plan);
    made.split = std::make_unique<SplitTokenModel>(model, runs);
    std::vector<int> ranks(static_cast<size_t>(world->size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    made.attention = std::make_unique<DisplacedKv>(model.geometry(), rows, *world, std::move(ranks),
                                                   runs->partition());
    const auto& sites = model.geometry().experts;
    backend = std::make_unique<ScheduledExchange>(
        plan, Timetable(plan, static_cast<int>(sites.size()), std::numeric_limits<int>::max()),
        ExpertExchange(world, expert_owners(plan, sites.front().experts)));
  } else {
    made.attention = std::make_unique<nn::KvAttention>(model.geometry(), rows);
    if (plan.tensor > 1) {
      made.reduce = std::make_unique<OrderedReduce>(*world);
      backend = std::make_unique<NarrowExperts>(*made.reduce);
    } else {
      backend = std::make_unique<nn::LocalBackend>();
    }
  }
  made.experts = std::make_unique<nn::MoeLayers>(made.policy, std::move(backend));
  return made;
}

}  // namespace tessera::parallel
