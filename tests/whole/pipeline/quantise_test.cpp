#include "pipeline/quantise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "load/quantisation.h"
#include "tessera/engine.h"
#include "test_paths.h"
#include "whole/golden.h"
#include "whole/text_model.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::string shipped(const std::string& name) { return std::string(TESSERA_MODELS_DIR "/") + name; }

Model open(const std::string& path, Precision precision = Precision::bf16, int64_t budget = 0) {
  RunOptions run = golden::options(precision);
  run.memory_budget = budget;
  return Model::open(path, run);
}

size_t entries_of(const fs::path& folder) {
  return size_t(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

CompleteResult answer(const Model& model) {
  CompleteRequest q;
  q.prompts = {"sort hello=", "rev stone="};
  return model.complete(q);
}

TEST(Quantise, AnswersAreThoseOfInt8AtLoadBitByBit) {
  for (const char* name : {"tasks-a", "tasks-b"}) {  // the experts of a layer share a tensor
    const golden::Scratch scratch;
    const std::string out = scratch / "q";
    const QuantiseResult made = open(shipped(name)).quantise({out});
    EXPECT_GT(made.matrices, 0);
    EXPECT_LT(made.bytes, made.bytes_before);
    const CompleteResult stored = answer(open(out)),
                         load = answer(open(shipped(name), Precision::int8)),
                         bf16 = answer(open(shipped(name)));
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(stored.completions[i].text, i == 0 ? "ehllo" : "enots");
      EXPECT_EQ(stored.completions[i].confidences, load.completions[i].confidences);
      EXPECT_NE(stored.completions[i].confidences, bf16.completions[i].confidences);
    }
    EXPECT_EQ(stored.bytes_read, load.bytes_read);
    EXPECT_EQ(stored.peak_bytes.weights, load.peak_bytes.weights);
    EXPECT_LT(stored.peak_bytes.weights, bf16.peak_bytes.weights);
    for (const char* file : {"tokenizer.json", "generation_config.json", "tasks.jsonl"})
      EXPECT_EQ(fs::file_size(fs::path(out) / file), fs::file_size(fs::path(shipped(name)) / file));
  }
}

// The words of answers are those of bf16; confidences are near, and not the same.
TEST(Quantise, Int4AnswersAndItsErrorsAreSaid) {
  for (const char* name : {"tasks-a", "tasks-b"}) {
    const golden::Scratch scratch;
    const std::string out = scratch / "q", eight = scratch / "e";
    const QuantiseResult made = open(shipped(name)).quantise({out, Precision::int4}),
                         more = open(shipped(name)).quantise({eight});
    ASSERT_EQ(static_cast<int64_t>(made.each.size()), made.matrices);
    ASSERT_EQ(more.each.size(), made.each.size());
    for (size_t i = 0; i < made.each.size(); ++i) {
      EXPECT_EQ(made.each[i].bits, 4);
      EXPECT_EQ(more.each[i].bits, 8);
      EXPECT_EQ(made.each[i].name, more.each[i].name);
      EXPECT_NEAR(made.each[i].relative_error, 0.08, 0.015) << made.each[i].name;
      EXPECT_NEAR(more.each[i].relative_error, 0.006, 0.003) << more.each[i].name;
    }
    EXPECT_LT(made.bytes, more.bytes);
    const Model model = open(out);
    const CompleteResult stored = answer(model), bf16 = answer(open(shipped(name))),
                         int8 = answer(open(eight));
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(stored.completions[i].text, i == 0 ? "ehllo" : "enots") << name;
      EXPECT_NE(stored.completions[i].confidences, bf16.completions[i].confidences);
      EXPECT_NE(stored.completions[i].confidences, int8.completions[i].confidences);
    }
    EXPECT_LT(stored.bytes_read, int8.bytes_read);
    EXPECT_LT(stored.peak_bytes.weights, int8.peak_bytes.weights);
    const Inspection seen = model.inspect();
    EXPECT_EQ(seen.memory.at("weights"), stored.peak_bytes.weights);
    EXPECT_EQ(seen.components[0].parameters,
              open(shipped(name)).inspect().components[0].parameters);
    EXPECT_EQ(seen.components[0].facts.at("experts"), "int4, with a scale for each 32");
    RunOptions run = golden::options(Precision::int8);  // reports nothing about weights in int4
    EXPECT_EQ(answer(Model::open(out, run)).completions[0].confidences,
              stored.completions[0].confidences);
  }
}

TEST(Quantise, Int4IsTheSameOnRanksAndThreadsAndBesideInt8) {
  const golden::Scratch scratch;
  const std::string out = scratch / "q", all = scratch / "all";
  open(shipped("tasks-b")).quantise({out, Precision::int4});
  const QuantiseResult made =
      open(shipped("tasks-b")).quantise({all, Precision::int4, Precision::int8});
  const auto alone = answer(open(out)).completions;
  for (const char* plan : {"expert=2", "expert=3"}) {
    RunOptions run = golden::options(Precision::bf16);
    run.plan = parse_plan(plan);
    EXPECT_EQ(answer(Model::open(out, run)).completions[0].confidences, alone[0].confidences)
        << plan;
  }
  for (const int threads : {1, 3}) {
    RunOptions run = golden::options(Precision::bf16);
    run.threads = threads;
    EXPECT_EQ(answer(Model::open(out, run)).completions[1].confidences, alone[1].confidences);
  }
  EXPECT_TRUE(std::ranges::any_of(made.each, [](const auto& one) { return one.bits == 4; }));
  EXPECT_TRUE(std::ranges::any_of(made.each, [](const auto& one) { return one.bits == 8; }));
  EXPECT_EQ(answer(open(all)).completions[1].text, "enots");
  RunOptions run = golden::options(Precision::bf16);
  run.plan = parse_plan("tensor=2");
  try {
    answer(Model::open(out, run));
    ADD_FAILURE() << "its experts are 16 wide: a half is no group";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::plan) << e.what();
    EXPECT_NE(std::string(e.what()).find("down_proj"), std::string::npos) << e.what();
  }
}

TEST(Quantise, Int4ImagesWholeOrStreamed) {
  const golden::Scratch scratch;
  const std::string out = scratch / "q";
  open(shipped("shapes")).quantise({out, Precision::int4});
  GenerateRequest q;
  q.classes = {"3"};
  q.steps = 2;
  const auto image = [&](const Model& model, bool streamed = false) {
    const GenerateResult made = model.generate(q);
    const auto& notes = made.report.notes;
    EXPECT_EQ(std::ranges::any_of(
                  notes,
                  [](const std::string& note) { return note.find("blocks") != std::string::npos; }),
              streamed)
        << made.report.peak_bytes.total;
    EXPECT_TRUE(made.report.int4_experts);
    EXPECT_FALSE(made.report.int8_experts);
    return made.images.at(0).rgb;
  };
  const auto stored = image(open(out));
  EXPECT_EQ(stored,
            image(open(out, Precision::bf16, 4'000'000), true));  // blocks are read in each step
  EXPECT_NE(open(shipped("shapes")).generate(q).images.at(0).rgb, stored);
}

// Two elements share a byte.
TEST(Quantise, Int4RefusesRowsOfAnOddNumber) {
  const golden::TextModel folder("llada2");
  base::Json config = base::read_json(folder.path("config.json"));
  config["moe_intermediate_size"] = 15;
  folder.write("config.json", config.dump());
  const load::SafetensorsFile file(folder.path("model.safetensors"));
  std::map<std::string, tensor::Tensor> tensors;
  for (const auto& [name, entry] : file.entries()) {
    tensor::Tensor x = file.get(name);
    for (int axis = 0; axis < x.rank(); ++axis)
      if (name.find("experts.") != std::string::npos && x.size(axis) == 16)
        x = x.slice(axis, 0, 15);
    tensors[name] = x.contiguous();
  }
  load::write_safetensors(folder.path("model.safetensors"), tensors);
  const golden::Scratch scratch;
  const std::string said = golden::error_of([&] {
    open(folder.path()).quantise({scratch / "x", Precision::int4});
  });
  EXPECT_NE(said.find("down_proj.weight' are of 15 elements"), std::string::npos) << said;
  EXPECT_EQ(entries_of(scratch / ""), 0u);
}

// Attention, dense and shared MLPs and the head; not routers, norms and embeddings.
TEST(Quantise, WhatIsDenseToo) {
  for (const char* name : {"tasks-a", "tasks-b"}) {
    const golden::Scratch scratch;
    const std::string out = scratch / "q", experts = scratch / "e";
    const QuantiseResult made =
        open(shipped(name)).quantise({out, Precision::int8, Precision::int8});
    const QuantiseResult less = open(shipped(name)).quantise({experts});
    EXPECT_GT(made.matrices, less.matrices);
    EXPECT_LT(made.bytes, less.bytes);
    const Model model = open(out);
    const CompleteResult stored = answer(model), routed = answer(open(experts));
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(stored.completions[i].text, i == 0 ? "ehllo" : "enots") << name;
      EXPECT_NE(stored.completions[i].confidences, routed.completions[i].confidences);
      ASSERT_EQ(stored.completions[i].ids, routed.completions[i].ids);
      for (size_t t = 0; t < stored.completions[i].ids.size(); ++t)
        EXPECT_NEAR(stored.completions[i].confidences[t], routed.completions[i].confidences[t],
                    0.05);
    }
    EXPECT_LT(stored.peak_bytes.weights, routed.peak_bytes.weights);
    EXPECT_LT(stored.bytes_read, routed.bytes_read);
    const Inspection seen = model.inspect();
    EXPECT_EQ(seen.memory.at("weights"), stored.peak_bytes.weights);
    EXPECT_EQ(seen.components[0].facts.at("dense"), "int8, with a scale a row");
    const load::SafetensorsFile file(out + "/model.safetensors");
    int64_t whole = 0;
    for (const auto& [tensor, entry] : file.entries()) {
      whole += entry.dtype == "I8";
      const bool kept = tensor.find("norm") != std::string::npos ||
                        tensor.find("mlp.gate.") != std::string::npos ||
                        tensor.find("embed") != std::string::npos;
      EXPECT_EQ(entry.dtype == "I8", !kept && entry.sizes.size() >= 2) << tensor;
    }
    EXPECT_EQ(whole, made.matrices);
    for (const char* plan : {"expert=2", "tensor=2"}) {
      RunOptions run = golden::options(Precision::bf16);
      run.plan = parse_plan(plan);
      EXPECT_EQ(answer(Model::open(out, run)).completions[1].text, "enots") << plan;
    }
  }
}

// The embeddings are read as stored, so a head tied to them stays, too.
TEST(Quantise, ATiedHeadStays) {
  const golden::TextModel folder("llada_moe");
  base::Json config = base::read_json(folder.path("config.json"));
  config["tie_word_embeddings"] = true;
  folder.write("config.json", config.dump());
  const load::SafetensorsFile file(folder.path("model.safetensors"));
  std::map<std::string, tensor::Tensor> tensors;
  for (const auto& [name, entry] : file.entries())
    if (name != "lm_head.weight") tensors[name] = file.get(name);
  load::write_safetensors(folder.path("model.safetensors"), tensors);
  const golden::Scratch scratch;
  const std::string out = scratch / "q";
  open(folder.path()).quantise({out, Precision::int8, Precision::int8});
  const load::SafetensorsFile made(out + "/model.safetensors");
  EXPECT_EQ(made.entry("model.embed_tokens.weight").dtype, "F32");
  EXPECT_EQ(made.entry("model.layers.0.self_attn.q_proj.weight").dtype, "I8");
  CompleteRequest q;
  q.prompt_ids = {{5, 6, 7}};
  q.max_tokens = 4;
  EXPECT_EQ(open(out).complete(q).completions[0].ids.size(), 4u);
}

// Experts of an odd number of elements, and others, leave nothing behind them askew.
TEST(Quantise, EachTensorStandsAtAMultipleOfItsElements) {
  const golden::TextModel folder("llada2");
  base::Json config = base::read_json(folder.path("config.json"));
  config["hidden_size"] = 31;
  config["moe_intermediate_size"] = 15;
  folder.write("config.json", config.dump());
  const load::SafetensorsFile file(folder.path("model.safetensors"));
  std::map<std::string, tensor::Tensor> tensors;
  for (const auto& [name, entry] : file.entries()) {
    tensor::Tensor x = file.get(name);
    for (int axis = 0; axis < x.rank(); ++axis) {
      const bool wide = name.find("experts.") != std::string::npos && x.size(axis) == 16;
      if (x.size(axis) == 32 || wide) x = x.slice(axis, 0, x.size(axis) - 1);
    }
    tensors[name] = x.contiguous();
  }
  tensors["odd"] = tensor::Tensor::zeros({3}, tensor::DType::u8);
  load::write_safetensors(folder.path("model.safetensors"), tensors);
  const golden::Scratch scratch;
  const std::string out = scratch / "q";
  open(folder.path()).quantise({out});
  const load::SafetensorsFile made(out + "/model.safetensors");
  for (const auto& [name, entry] : made.entries()) {
    const int64_t element = entry.dtype == "F32" ? 4 : 1;
    EXPECT_EQ(entry.begin % element, 0) << name;
  }
  EXPECT_EQ(made.entry("model.layers.1.mlp.experts.0.up_proj.weight").bytes(), 15 * 31);
  CompleteRequest q;
  q.prompt_ids = {{5, 6, 7}};
  q.max_tokens = 16;
  EXPECT_EQ(open(out).complete(q).completions[0].confidences,
            open(folder.path(), Precision::int8).complete(q).completions[0].confidences);
}

// The dense matrices and pairs of experts of tasks-a fill panels, except their last products, which
// are too narrow.
TEST(Quantise, WhatFillsPanelsLiesInThemAndIsUsedWhereItLies) {
  const golden::Scratch scratch;
  const std::string out = scratch / "q";
  open(shipped("tasks-a")).quantise({out, Precision::int8, Precision::int8});
  const load::TensorSet tensors = load::open_component(out);
  std::map<load::WeightOrder, int> found;
  for (const std::string& name : tensors.names())
    if (load::is_quantised(tensors, name)) ++found[load::order_of(tensors, name)];
  for (const load::WeightOrder order :
       {load::WeightOrder::rows, load::WeightOrder::panels, load::WeightOrder::half})
    EXPECT_GT(found[order], 0) << static_cast<int>(order);
  const CompleteResult read = answer(open(out));
  for (const char* plan : {"", "expert=2", "tensor=2"}) {
    RunOptions run = golden::options(Precision::bf16);
    run.map_weights = true;
    run.plan = parse_plan(plan);
    const CompleteResult mapped = answer(Model::open(out, run));
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(mapped.completions[i].text, read.completions[i].text) << plan;
      if (run.plan.tensor > 1) continue;
      EXPECT_EQ(mapped.completions[i].confidences, read.completions[i].confidences) << plan;
    }
    if (run.plan.ranks() > 1) continue;
    EXPECT_EQ(mapped.peak_bytes.weights, read.peak_bytes.weights);
    EXPECT_EQ(Model::open(out, run).inspect().memory.at("weights"), mapped.peak_bytes.weights);
  }
}

TEST(Quantise, RanksShareWhatIsStored) {
  const golden::Scratch scratch;
  const std::string out = scratch / "q";
  open(shipped("tasks-b")).quantise({out});
  const auto alone = answer(open(out)).completions;
  for (const char* plan : {"expert=2", "tensor=2"}) {
    RunOptions run = golden::options(Precision::bf16);
    run.plan = parse_plan(plan);
    const auto ranks = answer(Model::open(out, run)).completions;
    EXPECT_EQ(ranks[0].text, alone[0].text) << plan;
    if (run.plan.tensor == 1) {
      EXPECT_EQ(ranks[0].confidences, alone[0].confidences);
    }
  }
}

TEST(Quantise, ImagesAreThoseOfInt8AtLoadWholeOrStreamed) {
  const golden::Scratch scratch;
  const std::string out = scratch / "q";
  QuantiseRequest request{.output = out};
  request.dtype = Precision::int8;
  open(shipped("shapes")).quantise(request);
  GenerateRequest q;
  q.classes = {"3"};
  q.steps = 2;
  const auto image = [&](const Model& model) {
    const GenerateResult made = model.generate(q);
    EXPECT_TRUE(made.report.int8_experts);
    return made.images.at(0).rgb;
  };
  const auto stored = image(open(out));
  EXPECT_EQ(stored, image(open(shipped("shapes"), Precision::int8)));
  EXPECT_EQ(stored, image(open(out, Precision::bf16, 5'000'000)));  // blocks are read in each step
  EXPECT_NE(open(shipped("shapes")).generate(q).images.at(0).rgb, stored);
  EXPECT_EQ(open(out).inspect().components.back().downloaded, true);
}

TEST(Quantise, InspectPredictsWhatARunTakes) {
  const golden::Scratch scratch;
  const std::string out = scratch / "q";
  open(shipped("tasks-a")).quantise({out});
  const Inspection stored = open(out).inspect(),
                   load = open(shipped("tasks-a"), Precision::int8).inspect(),
                   bf16 = open(shipped("tasks-a")).inspect();
  EXPECT_EQ(stored.memory, load.memory);
  EXPECT_LT(stored.memory.at("weights"), bf16.memory.at("weights"));
  EXPECT_EQ(stored.components[0].parameters, bf16.components[0].parameters);
  EXPECT_LT(stored.components[0].file_bytes, bf16.components[0].file_bytes);
  EXPECT_EQ(stored.components[0].facts.at("experts"), "int8, with a scale a row");
}

TEST(Quantise, RefusesWhatItCannotAndLeavesNothing) {
  const golden::Scratch scratch;
  const Model model = open(shipped("tasks-b"));
  const auto said = [](const Model& m, const std::string& out) {
    return golden::error_of([&] { m.quantise({out}); });
  };
  EXPECT_NE(said(model, "").find("`output`"), std::string::npos);
  EXPECT_NE(said(model, shipped("tasks-b") + "/x").find("own folder"), std::string::npos);
  EXPECT_NE(said(model, shipped("tasks-b")).find("own folder"), std::string::npos);
  EXPECT_NE(said(model, scratch / "").find("exists already"), std::string::npos);
  EXPECT_NE(said(model, scratch / "no/where").find("make its folder first"), std::string::npos);
  EXPECT_NE(said(open(shipped("scenes")), scratch / "x").find("no routed experts"),
            std::string::npos);
  EXPECT_NE(said(open(shipped("shapes/vae")), scratch / "x").find("no transformer"),
            std::string::npos);
  EXPECT_EQ(golden::error_of([&] {
              model.quantise({scratch / "x", Precision::bf16});
            }),
            "`experts` bf16: experts are quantised to int8 or int4");
  EXPECT_NE(golden::error_of([&] {
              model.quantise({scratch / "x", Precision::int8, Precision::int4});
            }).find("`dense` int4"),
            std::string::npos);
  std::stop_source stop;
  const RunControl control{stop.get_token(), [&](const Progress& p) {
                             EXPECT_EQ(p.phase, Phase::quantise);
                             stop.request_stop();
                           }};
  try {
    model.quantise({scratch / "x"}, control);
    ADD_FAILURE() << "it was stopped";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::cancelled);
  }
  EXPECT_EQ(entries_of(scratch / ""), 0u);
  model.quantise({scratch / "x"});
  EXPECT_NE(said(open(scratch / "x"), scratch / "y").find("in int8 already"), std::string::npos);
}

TEST(Quantise, NamesWeightsThatAreNoNumbers) {
  const golden::TextModel folder("llada2");
  const std::string path = folder.path("model.safetensors");
  const load::SafetensorsFile file(path);
  std::map<std::string, tensor::Tensor> tensors;
  std::string broken;
  for (const auto& [name, entry] : file.entries()) {
    tensors[name] = file.get(name);
    if (name.find("experts.1.up_proj") != std::string::npos) broken = name;
  }
  ASSERT_FALSE(broken.empty());
  ASSERT_EQ(tensors[broken].dtype(), tensor::DType::f32);
  tensors[broken].data<float>()[5] = NAN;
  load::write_safetensors(path, tensors);
  const golden::Scratch scratch;
  const std::string said = golden::error_of([&] { open(folder.path()).quantise({scratch / "x"}); });
  EXPECT_NE(said.find(broken), std::string::npos) << said;
  EXPECT_NE(said.find("no numbers"), std::string::npos) << said;
  EXPECT_EQ(entries_of(scratch / ""), 0u);
}

}  // namespace
}  // namespace tessera
