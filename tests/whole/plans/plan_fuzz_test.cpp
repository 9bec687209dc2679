#include <memory>
#include <random>

#include "whole/random_model.h"

// Random plans over every family of images and videos, as from a user: each is refused before any
// weight is read, with a valid alternative, or gives the results of its oracle.
namespace tessera {
namespace {

using golden::RandomModel;
using models::kNetworks;
using models::Network;
using tensor::Tensor;

constexpr int kShards = 8, kPlans = 60;  // shards, and plans of each
constexpr float kGuidance = 2.5f;
constexpr size_t kFamilies = std::size(kNetworks);

/// The same numbers from a seed everywhere.
class Draw {
 public:
  explicit Draw(uint32_t seed) : rng_(seed) {}
  int below(int n) { return static_cast<int>(rng_() % static_cast<uint32_t>(n)); }
  int from_to(int least, int most) { return least + below(most - least + 1); }
  bool chance(int percent) { return below(100) < percent; }
  template <class T, size_t n>
  T any(const T (&values)[n]) {
    return values[below(static_cast<int>(n))];
  }

 private:
  std::mt19937 rng_;
};

/// A family's request besides the plan.
struct Family {
  const char* scheduler;  ///< folder of the reference data with the usual scheduler
  std::vector<SchedulerName> schedulers;
};
const Family kRuns[kFamilies] = {
    {"", {SchedulerName::rectified_flow, SchedulerName::ddpm}},
    {"pixart_alpha",
     {SchedulerName::dpm_multistep, SchedulerName::euler_ancestral, SchedulerName::ddpm}},
    {"sd35", {SchedulerName::flow_euler, SchedulerName::unipc}},
    {"flux_dev", {SchedulerName::flow_euler}},
    {"hunyuandit_v11", {SchedulerName::ddpm, SchedulerName::ddim, SchedulerName::heun}},
    {"cogvideox_2b", {SchedulerName::cogvideox_ddim, SchedulerName::cogvideox_dpm}},
};

/// An axis, with the probability to receive a prime factor of the number of ranks.
struct Weighted {
  const char* name;
  int weight, most;
};
constexpr Weighted kAxes[] = {
    {"data", 2, 12},    {"cfg", 3, 2},           {"pipefusion", 4, 4}, {"ring", 3, 12},
    {"ulysses", 4, 12}, {"distrifusion", 2, 12}, {"shard", 2, 12},     {"tensor", 2, 4},
};

struct Case {
  size_t family = 0;
  std::string plan;
  RunOptions options;
  GenerateRequest request;
  std::string described() const {
    return fmt::format("{} `plan` {} {}x{} frames {} steps {} count {} rescale {} seed {}",
                       kNetworks[family].type, plan, request.width, request.height, request.frames,
                       request.steps.value_or(0), request.count, request.guidance_rescale,
                       request.seed);
  }
};

const RandomModel& model_of(size_t family) {
  static std::array<std::unique_ptr<RandomModel>, kFamilies> made;
  if (!made[family])
    made[family] = std::make_unique<RandomModel>(kNetworks[family], kRuns[family].scheduler, true);
  return *made[family];
}

// Sizes of axes with a product from 1 to 12; suitable axes are likelier.
std::map<std::string, int> draw_axes(Draw& draw, size_t family) {
  std::map<std::string, int> sizes;
  int all = 0;
  for (const Weighted& axis : kAxes) sizes[axis.name] = 1, all += axis.weight;
  int ranks = draw.from_to(1, 12);
  for (int prime : {2, 2, 2, 3, 3, 5, 7, 11}) {
    if (ranks % prime != 0) continue;
    ranks /= prime;
    int place = draw.below(all);
    const Weighted* axis = kAxes;
    while (place >= axis->weight) place -= (axis++)->weight;
    const std::string name = axis->name;
    const bool alone = name == "distrifusion" || name == "tensor";  // they go with less
    const bool fits = sizes[name] * prime <= axis->most && !(alone && draw.chance(50)) &&
                      (name != "pipefusion" || draw.chance(5) ||
                       sizes[name] * prime <= model_of(family).spec.blocks);
    sizes[fits ? name : "ulysses"] *= prime;
  }
  if (sizes["distrifusion"] > 1 && draw.chance(80))
    sizes["ring"] = sizes["ulysses"] = sizes["pipefusion"] = 1;
  return sizes;
}

// Patches and shards, mostly valid, with their options.
std::string draw_patches(Draw& draw, std::map<std::string, int> sizes, int64_t blocks) {
  const int stages = sizes["pipefusion"];
  std::string text;
  if (stages > 1 && stages <= blocks && draw.chance(30)) {
    const int64_t first = draw.from_to(1, static_cast<int>(blocks) - stages + 1);
    text += fmt::format(",stages={}", first);
    for (int s = 1; s + 1 < stages; ++s) text += "+1";
    text += fmt::format("+{}", blocks - first - stages + 2);
  }
  const int ranks = sizes["distrifusion"];
  const bool cut = stages * sizes["ring"] * sizes["ulysses"] * sizes["tensor"] > 1;
  if (draw.chance(ranks > 1 ? 30 : cut ? 3 : 20)) {
    const int shards = draw.chance(90) ? ranks * draw.from_to(1, 3) : draw.from_to(1, 4);
    text += fmt::format(",shards={}", shards);
    if (draw.chance(90)) return text;
  }
  if (ranks > 1 && draw.chance(85)) return stages > 1 ? text + ",patches=1" : text;
  if (!draw.chance(stages > 1 ? 80 : 35)) return text;
  text += fmt::format(",patches={}", draw.from_to(1, 6));
  return draw.chance(25) ? text + ",cut=bands" : text;
}

// Experts over some of the ranks, under any schedule.
std::string draw_schedule(Draw& draw, int ranks, bool narrow) {
  std::string text;
  int expert = draw.from_to(1, std::min(ranks, draw.chance(90) ? 4 : ranks));
  if (ranks % expert != 0 && draw.chance(85)) expert = 1;
  if (expert > 1) text += fmt::format(",expert={}", expert);
  const char* const placements[] = {"strided", "0+1+0+1", "1+1+0+0"};
  if (expert > 1 && draw.chance(30)) text += fmt::format(",placement={}", draw.any(placements));
  if (narrow && draw.chance(85)) return "";
  const char* const schedules[] = {"sync",     "interweaved",     "displaced",
                                   "adaptive", "staggered-batch", "interweaved"};
  const std::string schedule = draw.any(schedules);
  if (schedule != "sync") text += ",schedule=" + schedule;
  const bool adaptive = schedule == "adaptive";
  const bool stale = adaptive || schedule == "interweaved" || schedule == "displaced";
  if (adaptive && draw.chance(50)) text += fmt::format(",budget={}", draw.below(101));
  const char* const layers[] = {"deep", "shallow", "staggered", "1", "0+1"};
  if (stale && draw.chance(40)) text += fmt::format(",sync={}", draw.any(layers));
  const char* const kept[] = {"low", "high", "random"};
  if (draw.chance(adaptive ? 5 : 40)) text += fmt::format(",conditional={}", draw.any(kept));
  if (draw.chance(20)) text += fmt::format(",stride={}", draw.from_to(1, 3));
  if (draw.chance(20)) text += ",conditional-layers=async";
  if (draw.chance(20)) text += ",scores=latest";
  if (expert > 1 && schedule != "staggered-batch" && text.size() % 2 == 0) text += ",moe=fused";
  return text;
}

std::string draw_plan(Draw& draw, size_t family) {
  const auto sizes = draw_axes(draw, family);
  std::string text;
  int different = 1;
  for (const Weighted& axis : kAxes) {
    const int size = sizes.at(axis.name);
    if (size > 1) text += fmt::format(",{}={}", axis.name, size);
    const std::string name = axis.name;
    if (name != "tensor" && name != "pipefusion" && name != "shard") different *= size;
  }
  text += draw_patches(draw, sizes, model_of(family).spec.blocks);
  const bool experts = kNetworks[family].type == std::string("DiTMoE");
  if (experts || draw.chance(3)) text += draw_schedule(draw, different, sizes.at("tensor") > 1);
  if (draw.chance(20)) text += fmt::format(",warmup={}", draw.from_to(1, 3));
  if (draw.chance(15)) text += fmt::format(",sync-every={}", draw.from_to(0, 3));
  if (draw.chance(15)) text += fmt::format(",cooldown={}", draw.from_to(0, 2));
  const char* const orders[] = {"ulysses+ring",      "tensor+cfg", "ring+data+ulysses",
                                "distrifusion+data", "pipefusion", "tensor+ulysses+ring+cfg+data",
                                "shard+cfg"};
  if (draw.chance(35)) text += fmt::format(",order={}", draw.any(orders));
  int ranks = 1;
  for (const auto& [axis, size] : sizes) ranks *= size;
  if (draw.chance(30)) {  // sometimes more than there are ranks or lines
    const int shares = draw.chance(5) ? ranks + 1 : draw.from_to(1, std::min(ranks, 5));
    const bool apart = shares > 1 && text.size() % 2 == 0;
    text += fmt::format(",vae={}{}", apart ? "+" : "", shares);
  }
  return text.empty() ? text : text.substr(1);
}

// Prompts with different lengths if the model supports them, in the form of text encoders.
std::map<std::string, Tensor> draw_text(Draw& draw, size_t family, int64_t prompts) {
  const models::PipelineSpec& spec = model_of(family).spec;
  const int64_t length = kNetworks[family].text > 0 ? draw.from_to(1, 7) : 0;
  const int64_t negatives = draw.chance(50) ? 1 : prompts;
  std::map<std::string, Tensor> text;
  for (const auto& [given, argument] : spec.text_inputs)
    for (const std::string& name : {given, "negative_" + given}) {
      const int64_t count = name == given ? prompts : negatives;
      if (name.find("mask") == std::string::npos) {
        for (const auto& input : spec.inputs) {
          if (input.name != argument) continue;
          std::vector<int64_t> sizes{count};
          sizes.insert(sizes.end(), input.sizes.begin(), input.sizes.end());
          if (sizes.size() == 3 && length > 0) sizes[1] = length;
          text[name] = models::NamedNoise().get(fmt::format("{}.{}", name, draw.below(1000)),
                                                tensor::Shape(sizes));
        }
        continue;
      }
      const int64_t tokens =
          text.at(given == "prompt_attention_mask" ? "prompt_embeds" : "prompt_embeds_2").size(1);
      Tensor mask = Tensor::zeros({count, tokens}, tensor::DType::i32);
      for (int64_t p = 0; p < count; ++p)
        std::fill_n(mask.row<int32_t>(p), draw.from_to(1, static_cast<int>(tokens)), 1);
      text[name] = mask;
    }
  return text;
}

Case draw_case(Draw& draw, const std::string& embeddings) {
  Case drawn;
  // DiT-MoE has a schedule's worth of plans more than the others.
  drawn.family = draw.chance(35) ? 0 : static_cast<size_t>(draw.from_to(1, int(kFamilies) - 1));
  const Network& network = kNetworks[drawn.family];
  drawn.plan = draw_plan(draw, drawn.family);
  const bool rounded = drawn.plan.find("ring=") != std::string::npos ||
                       drawn.plan.find("tensor=") != std::string::npos ||
                       drawn.plan.find("vae=") != std::string::npos;
  drawn.options.precision = rounded || draw.chance(50) ? Precision::f32 : Precision::bf16;
  drawn.options.threads = 2;
  drawn.options.comm_timeout = std::chrono::seconds(30);
  GenerateRequest& q = drawn.request;
  const bool bands = parse_plan(drawn.plan).vae > 1 || parse_plan(drawn.plan).vae_apart;
  q.decode = bands && draw.chance(97);
  const Plan plan = parse_plan(drawn.plan);
  const bool patches = plan.patch_count() * plan.shard_count() > 1;
  q.steps = draw.from_to(1, drawn.family == 0 || patches ? 4 : 2);
  q.seed = static_cast<uint64_t>(draw.below(1000));
  q.noise = draw.chance(50) ? NoiseSource::torch : NoiseSource::philox;
  q.width = 16 * draw.from_to(1, 5);
  q.height = 16 * draw.from_to(1, 5);
  if (drawn.plan.find("adaptive") != std::string::npos && draw.chance(80))
    q.width = 128, q.height = 64 * draw.from_to(1, 4);  // blocks of 64 tokens
  if (network.frames > 0) q.frames = 4 * draw.from_to(0, 3) + 1;
  if (patches && draw.chance(85))
    q.width = 16 * draw.from_to(3, 5), q.height = 16 * draw.from_to(3, 6);
  q.count = draw.from_to(1, 2);
  if (draw.chance(40)) {
    const auto& fit = kRuns[drawn.family].schedulers;
    q.scheduler = fit[static_cast<size_t>(draw.below(static_cast<int>(fit.size())))];
  }
  const bool guided = draw.chance(drawn.plan.find("cfg=") != std::string::npos ? 90 : 50);
  const float scale = guided ? kGuidance : 1;
  const bool flux = model_of(drawn.family).spec.embeds_guidance;
  q.guidance = flux ? 3.5f : scale;
  if (flux) q.true_guidance = scale;
  if (guided && draw.chance(10)) q.guidance_rescale = 0.5f;
  const int subjects = draw.from_to(1, 3), groups = parse_plan(drawn.plan).data;
  if (q.count * subjects < groups && draw.chance(85)) q.count = (groups + subjects - 1) / subjects;
  if (drawn.family == 0) {
    for (int s = 0; s < subjects; ++s) q.classes.push_back(std::to_string(draw.below(5)));
  } else {
    load::write_safetensors(embeddings, draw_text(draw, drawn.family, subjects));
    q.embeddings = embeddings;
  }
  return drawn;
}

struct Answer {
  std::vector<float> latents;
  std::vector<Image> images;  ///< images of a plan with vae=, and of its oracle
  int passes = 0;
  std::string refused, broke;  ///< messages; broke: neither refused in time nor done
};

Answer ask(const Case& asked, const std::string& plan) {
  Answer answer;
  bool reads = false;
  RunControl control;
  control.on_progress = [&](const Progress&) { reads = true; };
  try {
    RunOptions options = asked.options;
    options.plan = parse_plan(plan);
    const Model model = Model::open(model_of(asked.family).path(), options);
    GenerateResult result = model.generate(asked.request, control);
    answer.latents = std::move(result.latents);
    answer.images = std::move(result.images);
    answer.passes = result.steps;
  } catch (const Error& e) {
    (e.code() == ErrorCode::plan && !reads ? answer.refused : answer.broke) = e.what();
  }
  return answer;
}

/// The plan with bit-identical results: without axes that only distribute a run.
std::string exact_oracle(const std::string& text, int steps) {
  Plan plan = parse_plan(text);
  plan.patches = plan.patch_count();
  plan.shards = plan.shard_count();
  plan.data = plan.cfg = plan.pipefusion = plan.ulysses = plan.distrifusion = 1;
  plan.expert = plan.vae = plan.shard = 1;
  plan.vae_apart = false;
  plan.stages.clear();
  plan.order.clear();
  plan.placement = ExpertPlacement::blocks;
  plan.placement_list.clear();
  plan.moe = MoeForm::bulk;
  if (plan.schedule == ExpertSchedule::staggered_batch) plan.schedule = ExpertSchedule::sync;
  bool fresh = true;
  for (int step = 0; step < steps; ++step) fresh = fresh && plan.fresh(step, steps);
  if (!fresh) return to_string(plan);
  Plan same;
  same.ring = plan.ring;
  same.tensor = plan.tensor;
  if (plan.ring > 1) {  // the ring merges results of shards
    same.patches = plan.patches;
    same.cut = plan.cut;
    same.warmup = plan.warmup;
    same.sync_every = plan.sync_every;
    same.cooldown = plan.cooldown;
  }
  return to_string(same);
}

/// The plan with equal results within rounding.
std::string near_oracle(const std::string& exact) {
  Plan plan = parse_plan(exact);
  plan.ring = plan.tensor = 1;
  return to_string(plan);
}

/// A single rank decodes the latents of the group: images differ by a rounding at most.
void expect_alike(const std::vector<Image>& many, const std::vector<Image>& one,
                  const std::string& what) {
  ASSERT_EQ(many.size(), one.size()) << what;
  for (size_t i = 0; i < one.size(); ++i) {
    ASSERT_EQ(many[i].rgb.size(), one[i].rgb.size()) << what;
    for (size_t p = 0; p < one[i].rgb.size(); ++p)
      ASSERT_LE(std::abs(many[i].rgb[p] - one[i].rgb[p]), 1) << what << ", image " << i;
  }
}

bool says_what_is_valid(const std::string& message) {
  for (const char* word : {"use ", "leave ", "choose ", "add ", "give ", "expected ", "valid are"})
    if (message.find(word) != std::string::npos) return message.find('\n') == std::string::npos;
  return false;
}

/// Returns whether the plan ran.
bool check(const Case& drawn) {
  const Answer got = ask(drawn, drawn.plan);
  EXPECT_EQ(got.broke, "") << drawn.described();
  if (!got.refused.empty()) {
    EXPECT_TRUE(says_what_is_valid(got.refused)) << drawn.described() << ": " << got.refused;
  }
  if (got.latents.empty()) return false;
  const int steps = *drawn.request.steps;
  const std::string exact = exact_oracle(drawn.plan, steps), near = near_oracle(exact);
  const Answer same = ask(drawn, exact);
  EXPECT_EQ(same.refused + same.broke, "") << exact << ", the oracle of " << drawn.described();
  EXPECT_TRUE(got.latents == same.latents)
      << drawn.described() << " is not " << exact << ", off by "
      << golden::l2_error(got.latents, same.latents);
  expect_alike(got.images, same.images, drawn.described());
  if (near == exact) return true;
  // Guidance amplifies rounding by subtraction.
  const bool guided = drawn.request.guidance == kGuidance || drawn.request.true_guidance > 1;
  const double within = 1e-5 * got.passes * (guided ? 2 * kGuidance - 1 : 1);
  EXPECT_LT(golden::l2_error(got.latents, ask(drawn, near).latents), within)
      << drawn.described() << " is not near " << near;
  return true;
}

class PlanFuzz : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, PlanFuzz, testing::Range(0, kShards));

TEST_P(PlanFuzz, EachIsRefusedInTimeOrGivesWhatItsOracleGives) {
  const golden::Scratch scratch;
  int ran = 0;
  for (int i = 0; i < kPlans; ++i) {
    Draw draw(static_cast<uint32_t>(GetParam() * kPlans + i));
    const Case drawn = draw_case(draw, scratch / fmt::format("{}.safetensors", i));
    ran += check(drawn) ? 1 : 0;
  }
  EXPECT_GE(3 * ran, 2 * kPlans) << "those that ran, of " << kPlans;
}

}  // namespace
}  // namespace tessera
