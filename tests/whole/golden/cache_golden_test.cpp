#include "tessera/step_cache.h"
#include "whole/diffusers_golden.h"

// Runs with step caches against diffusers and cache-dit: computed blocks, and latents.
namespace tessera {
namespace {

using base::Json;
using golden::Scratch;
using load::SafetensorsFile;
using tensor::Tensor;

// The cases of the test data, and those of a whole reference set (TESSERA_GOLDEN).
std::vector<std::string> roots() {
  std::vector<std::string> found{TESSERA_TEST_DATA "/features/cache"};
  if (const char* more = std::getenv("TESSERA_GOLDEN"))
    if (const std::string root = std::string(more) + "/features/cache";
        std::filesystem::exists(root))
      found.push_back(root);
  return found;
}

// The settings of diffusers and cache-dit as keys of --cache.
std::string rule_of(const Json& run) {
  const std::string key = run["key"];
  if (key == "plain") return "";
  const bool taylor = key.starts_with("taylor"), mag = key.starts_with("mag");
  std::string rule = key.starts_with("fbc")   ? "fbcache"
                     : key.starts_with("db")  ? "dbcache"
                     : key.starts_with("tea") ? "teacache,coefficients=flux"
                     : taylor                 ? "taylorseer"
                     : mag                    ? "magcache,ratios=flux"
                                              : "";
  static const std::map<std::string, std::string> names{
      {"threshold", "threshold"},
      {"residual_diff_threshold", "threshold"},
      {"rel_l1_thresh", "threshold"},
      {"Fn_compute_blocks", "Fn"},
      {"Bn_compute_blocks", "Bn"},
      {"max_warmup_steps", "warmup"},
      {"warmup_interval", "warmup_interval"},
      {"max_cached_steps", "max_cached"},
      {"max_continuous_cached_steps", "max_continuous"},
      {"taylor", "taylor"},
      {"steps_computation_policy", "policy"},
      {"cache_interval", "interval"},
      {"disable_cache_before_step", "before"},
      {"disable_cache_after_step", "after"},
      {"max_order", "order"},
      {"max_skip_steps", "max_skip"},
      {"retention_ratio", "retention"}};
  for (const auto& [name, value] : run["settings"].items()) {
    if (const auto known = names.find(name); known != names.end())
      rule +=
          "," + known->second + "=" + (value.is_string() ? value.get<std::string>() : value.dump());
    if (name == "use_lite_mode") rule += ",lite=1";
    if (name != "steps_computation_mask") continue;
    rule += ",mask=";
    for (const int digit : value) rule += std::to_string(digit);
  }
  return rule;
}

struct CachedRun {
  std::string root, model;
  Json run, arguments;

  // The prompt's embeddings, for folders without a tokenizer.
  std::map<std::string, Tensor> embeddings() const {
    std::map<std::string, Tensor> found;
    const SafetensorsFile text(root + "/" + model + "/../io_text.safetensors");
    for (const auto& [name, entry] : text.entries()) {
      const std::string rest = name.substr(std::min<size_t>(name.size(), 9));
      if (name.starts_with("prompt.0.") && rest.find('.') == std::string::npos &&
          !rest.ends_with("_ids"))
        found[rest] = text.get(name);
    }
    return found;
  }
  GenerateRequest request(const Scratch& scratch) const {
    GenerateRequest q;
    const std::string folder = root + "/" + model;
    const SafetensorsFile begin(folder + "/../io_e2e_0.safetensors");
    load::write_safetensors(scratch / "init.safetensors",
                            {{"latents", begin.get("latents.init").slice(0, 0, 1)}});
    if (std::filesystem::exists(folder + "/tokenizer")) {
      q.prompts = {arguments["prompt"].get<std::string>()};
      if (arguments["negative_prompt"].is_string())
        q.negative_prompt = arguments["negative_prompt"].get<std::string>();
      q.text_tokens = arguments["max_sequence_length"];
    } else {
      load::write_safetensors(scratch / "text.safetensors", embeddings());
      q.embeddings = scratch / "text.safetensors";
    }
    q.initial_latents = scratch / "init.safetensors";
    q.height = arguments["height"];
    q.width = arguments["width"];
    q.steps = run["steps"].get<int>();
    q.guidance = arguments["guidance_scale"].get<float>();
    q.decode = false;
    if (const std::string rule = rule_of(run); !rule.empty()) q.cache = parse_step_cache(rule);
    return q;
  }
  std::string name() const {
    return root + " " + run["model"].get<std::string>() + " " + run["key"].get<std::string>();
  }
};

std::vector<CachedRun> runs() {
  std::vector<CachedRun> all;
  for (const std::string& root : roots()) {
    const Json described = base::read_json(root + "/case.json");
    for (const Json& run : described["runs"]) {
      const Json& model = described["models"][run["model"].get<std::string>()];
      all.push_back({root, model["model"], run, model["run"]});
    }
  }
  return all;
}

void compare(const CachedRun& one, const GenerateResult& result) {
  const SafetensorsFile io(one.root + "/" + one.run["io"].get<std::string>());
  const std::string latents = one.run["prefix"].get<std::string>() + "latents.20";
  EXPECT_LT(golden::l2_error(result.latents, io.get(latents).to_floats()), 1e-3);
  EXPECT_EQ(result.report.reused.has_value(), one.run["key"] != "plain");
  if (!result.report.reused) return;
  const Report::Reused& reused = *result.report.reused;
  const Json& blocks = one.run["computed_blocks"];
  if (!blocks.empty()) {
    EXPECT_EQ(reused.computed_blocks, blocks.get<std::vector<std::vector<int>>>());
  }
  ASSERT_EQ(std::ssize(reused.computed_blocks), 20);
  for (size_t step = 0; step < one.run["decisions"].size(); ++step) {
    const Json& decision = one.run["decisions"][step];
    const bool all = reused.computed_blocks[step].size() == one.run["blocks"].size();
    EXPECT_EQ(all, decision["compute"].get<bool>()) << "step " << step;
    if (decision.contains("change") && decision["change"].is_number()) {
      EXPECT_NEAR(reused.changes[step], decision["change"].get<double>(), 2e-5) << step;
    }
  }
}

TEST(CacheGolden, ComputesTheBlocksOfDiffusersAndCacheDit) {
  const std::vector<CachedRun> all = runs();
  EXPECT_GE(all.size(), 18u) << "those that travel with the tests";
  for (const CachedRun& one : all) {
    SCOPED_TRACE(one.name());
    const Scratch scratch;
    const GenerateRequest q = one.request(scratch);
    compare(one,
            Model::open(one.root + "/" + one.model, golden::options(Precision::f32)).generate(q));
  }
}

// FLUX.1 with true guidance in diffusers: a cache context for each branch. The negative text is the
// text, mirrored; decisions and numbers are those of diffusers 0.42.1, made once.
TEST(CacheGolden, BranchesApartDecideAsInDiffusers) {
  const Scratch scratch;
  const std::string data = TESSERA_TEST_DATA;
  const SafetensorsFile begin(data + "/diffusers/flux_dev/io_e2e_0.safetensors");
  load::write_safetensors(scratch / "init.safetensors",
                          {{"latents", begin.get("latents.init").slice(0, 0, 1)}});
  GenerateRequest q;
  q.embeddings = golden::with_negative(data + "/features/image/text_flux_dev.safetensors", scratch);
  q.initial_latents = scratch / "init.safetensors";
  q.height = 64;
  q.width = 96;
  q.steps = 20;
  q.guidance = 3.5f;
  q.true_guidance = 2;
  q.decode = false;
  q.cache = parse_step_cache("fbcache,threshold=0.45,branches=apart");
  const auto computed = [](const std::vector<std::vector<int>>& steps) {
    std::string text;
    for (const auto& blocks : steps) text += blocks.size() == 5 ? '1' : '0';
    return text;
  };
  std::vector<float> first;
  for (const char* plan : {"", "cfg=2", "cfg=2,ulysses=2"}) {
    RunOptions options = golden::options(Precision::f32);
    options.plan = parse_plan(plan);
    const GenerateResult made =
        Model::open(data + "/diffusers/flux_dev/model", options).generate(q);
    const Report::Reused& reused = *made.report.reused;
    EXPECT_EQ(computed(reused.computed_blocks), "11111110101011111101") << plan;
    EXPECT_EQ(computed(reused.negative_computed_blocks), "11110110001011111101") << plan;
    double norm = 0;
    for (const float value : made.latents) norm += double(value) * value;
    EXPECT_NEAR(std::sqrt(norm), 74.347618, 0.02);
    const float expected[] = {0.085165f, 4.461385f, -0.518854f, -0.205529f, 3.509997f, 0.361941f};
    for (size_t i = 0; i < std::size(expected); ++i)
      EXPECT_NEAR(made.latents[i], expected[i], 2e-3) << i;
    if (first.empty()) first = made.latents;
    EXPECT_EQ(made.latents, first) << plan;
  }
}

// Reused steps save their computation, and a plan changes no decision and no bit.
TEST(CacheGolden, PlansGiveTheSameBits) {
  for (const CachedRun& one : runs()) {
    const std::string key = one.run["key"];
    if (!one.root.starts_with(TESSERA_TEST_DATA) ||
        (key != "fbc_0.45" && key != "db_f2b1" && key != "tea_0.8" && key != "taylor_o1"))
      continue;
    SCOPED_TRACE(key);
    const auto made = [&](const std::string& plan, bool cached) {
      const Scratch scratch;
      RunOptions options = golden::options(Precision::f32);
      options.plan = parse_plan(plan);
      GenerateRequest q = one.request(scratch);
      if (!cached) q.cache.reset();
      return Model::open(one.root + "/" + one.model, options).generate(q);
    };
    const GenerateResult alone = made("", true), ranks = made("ulysses=2", true);
    EXPECT_EQ(ranks.latents, alone.latents);
    EXPECT_EQ(ranks.report.reused->computed_blocks, alone.report.reused->computed_blocks);
    const double whole = made("", false).report.flops, saved = alone.report.reused->flops_saved;
    EXPECT_GT(saved, 0);
    EXPECT_NEAR(alone.report.flops + saved, whole, 0.03 * whole);
  }
}

}  // namespace
}  // namespace tessera
