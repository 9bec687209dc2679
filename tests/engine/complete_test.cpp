#include "engine/llada_golden.h"
#include "engine/text_model.h"
#include "tessera/engine.h"
#include "tokenizer/byte_level_bpe.h"

namespace tessera {
namespace {

Model open(const std::string& path) { return Model::open(path, golden::options(Precision::f32)); }

CompleteRequest request_of(const base::Json& run, int block) {
  CompleteRequest q;
  q.prompt_ids = {run.at("prompt").get<std::vector<int32_t>>()};
  q.max_tokens = 32;
  q.block = block;
  q.cache = "none";
  q.stop_at_eos = "none";
  return q;
}

const base::Json& run_named(const golden::LladaCase& golden, const std::string& name) {
  for (const auto& run : golden.json.at("runs"))
    if (run.at("name") == name) return run;
  throw Error(ErrorCode::usage, "no run " + name);
}

TEST(Complete, GivesTheGoldenTokensThroughThePublicFace) {
  const golden::LladaCase moe("llada_moe"), two("llada2");
  {
    Model model = open(moe.folder + "/model");
    CompleteRequest q = request_of(run_named(moe, "dual_threshold"), 8);
    q.decode = "threshold:0.8";
    q.cache = "auto";
    const CompleteResult result = model.complete(q);
    const auto whole = moe.ids("dual_threshold.tokens");
    EXPECT_EQ(result.completions[0].ids, std::vector<int32_t>(whole.begin() + 13, whole.end()));
    EXPECT_EQ(result.forwards, 15);
    EXPECT_EQ(result.completions[0].finish, "length");
    EXPECT_GT(result.bytes_read, 0);
  }
  Model model = open(two.folder + "/model");
  CompleteRequest q = request_of(run_named(two, "eos_early_cached"), 8);
  q.decode = "threshold:0.8";
  q.cache = "auto";
  q.stop_at_eos = "early";
  const CompleteResult result = model.complete(q);
  EXPECT_EQ(result.completions[0].ids, two.ids("eos_early_cached.tokens"));
  EXPECT_EQ(result.completions[0].finish, "end");
  EXPECT_EQ(result.forwards, 10);
}

TEST(Complete, StreamsWhatIsFinalAndEndsAtStopTexts) {
  const golden::TextModel folder("llada_moe");
  Model model = open(folder.path());
  CompleteRequest q;
  q.prompts = {"Hello"};
  q.raw = true;
  q.max_tokens = 24;
  q.block = 8;
  q.stop_at_eos = "none";
  std::string streamed;
  bool ended = false;
  CompleteControl control;
  control.on_progress = [&](const CompleteProgress& p) {
    streamed += p.text;
    ended = p.ended;
    EXPECT_TRUE(p.ended || p.block.size() == 8);
  };
  const Completion whole = model.complete(q, control).completions[0];
  EXPECT_EQ(whole.text.size(), 24u);
  EXPECT_EQ(streamed, whole.text);
  EXPECT_TRUE(ended);
  q.stop = {whole.text.substr(9, 3), "never there at all"};
  streamed.clear();
  const Completion cut = model.complete(q, control).completions[0];
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(q.stop[0])));
  EXPECT_EQ(streamed, cut.text);
  EXPECT_EQ(cut.finish, "stop");
  EXPECT_LT(cut.passes.size(), whole.passes.size());
}

TEST(Complete, AStreamNeverSplitsACharacter) {
  const golden::TextModel folder("llada_moe");
  base::Json vocab;  // pieces of two-byte characters: C3 and A9 in every order
  std::vector<std::string> pieces{""};
  for (size_t i = 0; vocab.size() < 92; ++i) {
    for (const char* half : {"\u00c3", "\u00a9"}) {
      pieces.push_back(pieces[i] + half);
      if (vocab.size() < 92) vocab[pieces.back()] = vocab.size();
    }
  }
  base::Json file = base::read_json(folder.path("tokenizer.json"));
  file["model"]["vocab"] = vocab;
  folder.write("tokenizer.json", file.dump());
  Model model = open(folder.path());
  for (int32_t first : {1, 20, 55}) {
    CompleteRequest q;
    q.prompt_ids = {{first, 7}};
    q.max_tokens = 32;
    q.block = 8;
    q.stop_at_eos = "none";
    std::string streamed;
    CompleteControl control;
    control.on_progress = [&](const CompleteProgress& p) {
      EXPECT_EQ(tokenizer::whole_characters(p.text), p.text.size());
      streamed += p.text;
    };
    const Completion made = model.complete(q, control).completions[0];
    EXPECT_FALSE(made.text.empty());
    EXPECT_EQ(streamed, made.text);
    EXPECT_NO_THROW(base::Json(made.text).dump());  // UTF-8
  }
}

TEST(Complete, ABatchIsItsPromptsAlone) {
  const golden::TextModel folder("llada2");
  Model model = open(folder.path());
  CompleteRequest q;
  q.max_tokens = 20;
  q.select = "des-vote:0.5";
  q.prompts = {"a", "Some words", "and a third, longer than the others"};
  const CompleteResult all = model.complete(q);
  for (size_t i = 0; i < 3; ++i) {
    CompleteRequest one = q;
    one.prompts = {q.prompts[i]};
    const Completion alone = model.complete(one).completions[0];
    EXPECT_EQ(alone.ids, all.completions[i].ids);
    EXPECT_EQ(alone.passes.size(), all.completions[i].passes.size());
  }
  for (const auto& pass : all.completions[0].passes) EXPECT_EQ(pass.experts.size(), 2u);
}

int64_t most(const Completion::Pass& pass) {
  return *std::max_element(pass.experts.begin(), pass.experts.end());
}

TEST(Complete, PassesThatCommitTokensAreUnderTheRule) {
  Model moe = open(golden::LladaCase("llada_moe").folder + "/model");
  CompleteRequest q;
  q.prompt_ids = {{1, 2, 3}};
  q.max_tokens = 24;
  q.block = 8;
  q.stop_at_eos = "none";
  q.select = "des-vote:0.25";
  for (const char* cache : {"none", "prefix", "dual", "vicinity:4,4,1"}) {
    q.cache = cache;
    const CompleteResult result = moe.complete(q);
    EXPECT_EQ(ruled_share(result), 1) << cache;
    for (const auto& pass : result.completions[0].passes) {
      EXPECT_TRUE(pass.ruled);
      EXPECT_LE(most(pass), 4) << cache << " " << pass.kind;  // a quarter of 16
    }
  }
  q.cache = "dual";
  q.select_refresh = false;
  const CompleteResult before = moe.complete(q);
  EXPECT_LT(ruled_share(before), 1);
  for (const auto& pass : before.completions[0].passes) {
    EXPECT_EQ(pass.ruled, pass.kind != "refresh");
    EXPECT_EQ(most(pass) <= 4, pass.ruled);
  }
  Model two = open(golden::LladaCase("llada2").folder + "/model");
  q.cache = "auto";
  q.select_refresh = true;
  q.prompt_ids = {std::vector<int32_t>(11, 5)};
  for (const bool prefill : {false, true}) {
    q.select_prefill = prefill;
    const CompleteResult result = two.complete(q);
    EXPECT_EQ(ruled_share(result), 1);
    for (const auto& pass : result.completions[0].passes)
      EXPECT_EQ(pass.ruled, prefill || pass.kind == "block") << pass.kind;
  }
}

TEST(Complete, JsonHoldsIdsUsageAndExperts) {
  Model model = open(golden::LladaCase("llada_moe").folder + "/model");
  CompleteRequest q;
  q.prompt_ids = {{1, 2, 3}};
  q.max_tokens = 8;
  const base::Json json = base::Json::parse(to_json(model.complete(q)));
  const base::Json& one = json.at("completions").at(0);
  EXPECT_EQ(one.at("ids").size(), one.at("usage").at("completion_tokens").get<size_t>());
  EXPECT_EQ(one.at("usage").at("prompt_tokens"), 3);
  EXPECT_EQ(one.at("prompt_ids"), (base::Json{1, 2, 3}));
  ASSERT_EQ(one.at("confidences").size(), one.at("ids").size());
  for (const auto& sure : one.at("confidences")) {
    EXPECT_GT(sure.get<double>(), 0);
    EXPECT_LE(sure.get<double>(), 1);
  }
  EXPECT_EQ(json.at("pass_seconds").size(), json.at("forwards").get<size_t>());
  EXPECT_EQ(one.at("forwards"), one.at("passes").size());
  EXPECT_EQ(one.at("passes").at(0).at("experts").size(), 3u);
  EXPECT_GT(json.at("experts_read").get<int>(), 0);
}

TEST(Complete, ConfidencesAreThoseOfTheThreshold) {
  Model model = open(golden::LladaCase("llada2").folder + "/model");
  CompleteRequest q;
  q.prompt_ids = {{1, 2, 3}};
  q.max_tokens = 13;
  q.block = 8;
  q.decode = "steps:1";  // a pass fills the block: what it commits is the arg max of that pass
  q.stop_at_eos = "none";
  const Completion all = model.complete(q).completions[0];
  ASSERT_EQ(all.confidences.size(), 13u);
  q.decode = "steps:8";  // one at a time, the surest first: no first commit is less sure
  const Completion slow = model.complete(q).completions[0];
  const double first = *std::max_element(all.confidences.begin(), all.confidences.begin() + 5);
  const double best = *std::max_element(slow.confidences.begin(), slow.confidences.begin() + 5);
  EXPECT_GE(best, first - 1e-6);
}

TEST(Complete, ARuleAboveTheModelsExpertsIsSaid) {
  Model model = open(golden::LladaCase("llada_moe").folder + "/model");
  CompleteRequest q;
  q.prompt_ids = {{1, 2, 3}};
  q.max_tokens = 4;
  std::vector<std::string> notes;
  CompleteControl control;
  control.on_note = [&](const std::string& note) { notes.push_back(note); };
  for (const char* rule : {"vanilla", "topk:4", "des-seq:2", "des-vote:0.5,k=4"}) {
    q.select = rule;
    model.complete(q, control);
    EXPECT_TRUE(notes.empty()) << rule;
  }
  for (const char* rule : {"topk:5", "des-seq:5", "des-vote:0.5,k=5"}) {
    notes.clear();
    q.select = rule;
    model.complete(q, control);
    ASSERT_EQ(notes.size(), 1u) << rule;
    EXPECT_NE(notes[0].find("up to 5 experts, more than the 4"), std::string::npos) << notes[0];
  }
}

TEST(Complete, BadInputIsOneLineThatNamesIt) {
  Model model = open(golden::LladaCase("llada_moe").folder + "/model");
  const auto refused = [&](auto change) {
    CompleteRequest q;
    q.prompt_ids = {{1, 2, 3}};
    q.max_tokens = 8;
    change(q);
    const std::string message = golden::error_of([&] { model.complete(q); });
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message;
  };
  EXPECT_EQ(refused([](CompleteRequest&) {}), "");
  const auto has = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  has(refused([](auto& q) { q.prompt_ids.clear(); }), "no prompt");
  has(refused([](auto& q) { q.prompt_ids = {{96}}; }), "vocabulary of 96");
  has(refused([](auto& q) { q.prompt_ids = {{1, 95}}; }), "mask token 95");
  has(refused([](auto& q) { q.max_tokens = 300; }), "context of 256");
  has(refused([](auto& q) { q.max_tokens = -1; }), "--max-tokens -1: expected a number from 0");
  has(refused([](auto& q) { q.prompts = {""}; }), "--prompt ''");
  has(refused([](auto& q) { q.prompt_ids.push_back({}); }), "prompt 1 holds no token");
  has(refused([](auto& q) { q.block = 500; }), "block of 500");
  has(refused([](auto& q) { q.cache = "block"; }), "bidirectional");
  has(refused([](auto& q) { q.select = "topk:17"; }), "the model has 16");
  has(refused([](auto& q) { q.select = "des-vote:0.01"; }), "leaves no expert");
  has(refused([](auto& q) {
        q.decode = "steps:4";
        q.steps = 3;
      }),
      "contradict");
  has(refused([](auto& q) {
        q.decode = "factor:1";
        q.steps = 3;
      }),
      "schedule");
  has(refused([](auto& q) { q.prompts = {"text"}; }), "tokenizer.json");
  has(refused([](auto& q) { q.chat = "[]"; }), "no chat template");
  has(refused([](auto& q) { q.stop = {"x"}; }), "tokenizer.json");
  has(refused([](auto& q) { q.temperature = -1; }), "temperature");
}

TEST(Complete, InspectDescribesALanguageModel) {
  const auto found = open(golden::LladaCase("llada2").folder + "/model").inspect();
  ASSERT_EQ(found.components.size(), 1u);
  EXPECT_EQ(found.components[0].facts.at("num_experts"), "16");
}

TEST(Complete, AnUnknownLanguageModelIsNamed) {
  const golden::TextModel folder("llada_moe");
  folder.write("config.json", R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"]})");
  EXPECT_NE(golden::error_of([&] { open(folder.path()); }).find("LlamaForCausalLM"),
            std::string::npos);
}

TEST(Complete, Int8ExpertsChangeValuesButNotHowExpertsAreChosen) {
  for (const char* name : {"llada_moe", "llada2"}) {
    const std::string folder = golden::LladaCase(name).folder + "/model";
    CompleteRequest q;
    q.prompt_ids = {{5, 17, 30, 2}, {8}};
    q.max_tokens = 12;
    q.block = 8;
    q.select = "des-vote:0.5";
    q.stop_at_eos = "none";
    const auto run = [&](bool int8, const std::string& plan) {
      RunOptions options = golden::options(int8 ? Precision::int8 : Precision::bf16);
      options.plan = parse_plan(plan);
      return Model::open(folder, options).complete(q);
    };
    const CompleteResult whole = run(false, ""), small = run(true, "");
    EXPECT_NE(small.bytes_read, whole.bytes_read);  // half, in models wider than a panel's step
    // The first layer's router has seen no expert yet.
    EXPECT_EQ(small.completions[0].passes[0].experts[0], whole.completions[0].passes[0].experts[0]);
    const CompleteResult split = run(true, "expert=3");
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(split.completions[i].ids, small.completions[i].ids);
    EXPECT_EQ(split.experts_read, small.experts_read);
  }
}

}  // namespace
}  // namespace tessera
