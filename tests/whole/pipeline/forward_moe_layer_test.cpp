#include "pipeline/forward_moe_layer.h"

#include <cstring>
#include <numeric>

#include "base/json.h"
#include "test_paths.h"
#include "whole/golden.h"

namespace tessera {
namespace {

using load::SafetensorsFile;
using tensor::DType;
using tensor::Tensor;

struct Made {
  std::vector<float> out;
  std::vector<int64_t> shape;
  std::vector<int32_t> counts, kept;
  bool operator==(const Made&) const = default;
};

template <class T>
std::vector<T> values_of(const TensorData& data) {
  const TensorView view = data.view();
  const int64_t n = std::accumulate(view.shape.begin(), view.shape.end(), int64_t{1},
                                    [](int64_t a, int64_t b) { return a * b; });
  std::vector<T> values(static_cast<size_t>(n));
  if (n > 0) std::memcpy(values.data(), view.data, values.size() * sizeof(T));
  return values;
}

Made run(const Model& model, const Tensor& x, const MoeLayerForm& form) {
  ForwardRequest request;
  request.component = ModelPart::moe_layer;
  request.moe = form;
  request.tensors["x"] = {
      static_cast<ElementType>(x.dtype()), {x.shape().begin(), x.shape().end()}, x.raw()};
  const NamedTensors made = model.forward(request);
  EXPECT_EQ(made.size(), 3u);
  return {values_of<float>(made.at("out")), made.at("out").view().shape,
          values_of<int32_t>(made.at("counts")), values_of<int32_t>(made.at("kept_counts"))};
}

// A golden case: a folder with a layer, and its runs.
struct Case {
  explicit Case(const std::string& name)
      : folder(TESSERA_TEST_DATA "/moe/" + name),
        io(folder + "/io.safetensors"),
        json(base::read_json(folder + "/case.json")) {}

  Model open(Precision precision = Precision::f32, const std::string& plan = "") const {
    RunOptions options = golden::options(precision);
    options.plan = parse_plan(plan);
    return Model::open(folder + "/model", options);
  }
  static MoeLayerForm form_of(const base::Json& one) {
    MoeLayerForm form;
    form.gate = one.at("gate");
    form.top_k = one.at("k");
    form.experts = choice_of<ExpertActivation>(one.at("experts").get<std::string>(), "experts");
    form.renormalise = one.at("renormalise");
    if (!one.at("capacity").is_null()) form.capacity = one.at("capacity").get<int64_t>();
    return form;
  }
  std::vector<int32_t> counts(const base::Json& one) const {
    const std::string x = one.at("x"), gate = one.at("gate");
    const auto stored = io.get("route." + x.substr(2) + "." + gate.substr(5, gate.size() - 12) +
                               ".k" + std::to_string(one.at("k").get<int>()) + ".counts")
                            .to_ints();
    return {stored.begin(), stored.end()};
  }

  std::string folder;
  SafetensorsFile io;
  base::Json json;
};

class MoeLayerGolden : public testing::TestWithParam<const char*> {};

TEST_P(MoeLayerGolden, EveryRunIsTheReferences) {
  const Case golden(GetParam());
  const Model model = golden.open();
  size_t dropped = 0;
  for (const auto& one : golden.json.at("runs")) {
    const std::string name = one.at("name");
    const Made made = run(model, golden.io.get(one.at("x")), Case::form_of(one));
    EXPECT_LT(golden::max_error(made.out, golden.io.get(name + ".y").to_floats()), 1e-4) << name;
    EXPECT_EQ(made.counts, golden.counts(one)) << name;
    if (one.at("capacity").is_null()) {
      EXPECT_EQ(made.kept, made.counts) << name;
      continue;
    }
    EXPECT_EQ(made.kept, one.at("kept_counts").get<std::vector<int32_t>>()) << name;
    const auto sum = [](const auto& counts) {
      return std::accumulate(counts.begin(), counts.end(), 0);
    };
    EXPECT_EQ(sum(made.counts) - sum(made.kept), one.at("dropped_slots").get<int>()) << name;
    dropped += one.at("dropped_slots").get<size_t>();
    const auto hidden = static_cast<size_t>(made.shape[1]);
    std::vector<int> zero;
    for (size_t t = 0; t * hidden < made.out.size(); ++t)
      if (std::all_of(&made.out[t * hidden], &made.out[t * hidden] + hidden,
                      [](float v) { return v == 0; }))
        zero.push_back(static_cast<int>(t));
    EXPECT_EQ(zero, one.at("tokens_without_expert").get<std::vector<int>>()) << name;
  }
  EXPECT_GT(golden.json.at("runs").size(), 100u);
  EXPECT_GT(dropped, 100u);
}

TEST_P(MoeLayerGolden, TiesGoToTheLowestExpert) {
  const Case golden(GetParam());
  const golden::Scratch scratch;
  std::filesystem::copy(golden.folder + "/model", scratch / "model");
  const SafetensorsFile stored(golden.folder + "/model/model.safetensors");
  std::map<std::string, Tensor> tensors{{"gate.ties.weight", golden.io.get("ties.gate")}};
  for (const auto& [name, entry] : stored.entries()) tensors[name] = stored.get(name);
  load::write_safetensors(scratch / "model/model.safetensors", tensors);
  const Model model = Model::open(scratch / "model", golden::options(Precision::f32));
  ASSERT_EQ(golden.json.at("ties").size(), 3u);
  for (const auto& one : golden.json.at("ties")) {
    const MoeLayerForm form{.gate = "ties", .top_k = one.at("k").get<int>()};
    EXPECT_LT(
        golden::max_error(run(model, golden.io.get("ties.x"), form).out,
                          golden.io.get(one.at("prefix").get<std::string>() + "y").to_floats()),
        1e-4);
  }
}

// bf16 keeps the routing here: the cases' clearance is wide.
TEST_P(MoeLayerGolden, Bf16AndInt8StayClose) {
  const Case golden(GetParam());
  for (const Precision precision : {Precision::bf16, Precision::int8}) {
    const Model model = golden.open(precision);
    double error = 0, size = 0;
    for (const auto& one : golden.json.at("runs")) {
      const Made made = run(model, golden.io.get(one.at("x")), Case::form_of(one));
      if (made.counts != golden.counts(one)) continue;
      const auto want = golden.io.get(one.at("name").get<std::string>() + ".y").to_floats();
      for (size_t i = 0; i < want.size(); ++i) {
        error += std::pow(double(made.out[i]) - double(want[i]), 2);
        size += std::pow(double(want[i]), 2);
      }
    }
    EXPECT_GT(size, 0);
    EXPECT_LT(std::sqrt(error / size), 3e-2) << word_of(precision);
  }
}

TEST_P(MoeLayerGolden, AnyRanksGiveTheBitsOfOne) {
  const Case golden(GetParam());
  for (const Precision precision : {Precision::f32, Precision::bf16, Precision::int8}) {
    const Model one = golden.open(precision);
    for (const char* plan : {"expert=2", "expert=3,placement=strided", "expert=4",
                             "expert=2,moe=fused", "expert=3,moe=fused", "expert=4,moe=fused"}) {
      const Model ranks = golden.open(precision, plan);
      for (const char* x : {"x.0", "x.1", "x.7", "x.129"})
        for (const ExpertActivation act : {ExpertActivation::swiglu, ExpertActivation::gelu})
          for (const std::optional<int64_t> capacity :
               {std::optional<int64_t>{}, std::optional<int64_t>{3}}) {
            const MoeLayerForm form{.gate = "skew",
                                    .top_k = 2,
                                    .experts = act,
                                    .renormalise = true,
                                    .capacity = capacity};
            EXPECT_EQ(run(ranks, golden.io.get(x), form), run(one, golden.io.get(x), form))
                << plan << " " << x << " " << word_of(precision);
          }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, MoeLayerGolden,
                         testing::Values("moe_layer_e4", "moe_layer_e8", "moe_layer_e64"));

TEST(MoeLayerForward, ATokensRowDependsOnNoOther) {
  const Case golden("moe_layer_e8");
  const Model model = golden.open();
  const Tensor x = golden.io.get("x.129");
  const MoeLayerForm form{.gate = "uniform", .top_k = 2, .experts = ExpertActivation::silu};
  const Made all = run(model, x, form);
  Tensor turned = Tensor::empty(x.shape(), x.dtype());
  for (int64_t t = 0; t < 129; ++t)
    tensor::copy_into(turned.slice(0, t, t + 1), x.slice(0, 128 - t, 129 - t));
  const Made other = run(model, turned, form);
  EXPECT_EQ(other.counts, all.counts);
  for (size_t t = 0; t < 129; ++t)
    EXPECT_TRUE(std::equal(&all.out[t * 24], &all.out[t * 24] + 24, &other.out[(128 - t) * 24]));
}

TEST(MoeLayerForward, CapacityAtItsEnds) {
  const Case golden("moe_layer_e8");
  const Model model = golden.open();
  const Tensor x = golden.io.get("x.129");
  MoeLayerForm form{.gate = "gate.skew.weight", .top_k = 8, .experts = ExpertActivation::relu};
  const Made all = run(model, x, form);
  EXPECT_EQ(all.counts, std::vector<int32_t>(8, 129)) << "k = E";
  form.capacity = 129;
  EXPECT_EQ(run(model, x, form), all);
  form.capacity = 0;
  const Made none = run(model, x, form);
  EXPECT_EQ(none.counts, all.counts);
  EXPECT_EQ(none.kept, std::vector<int32_t>(8, 0));
  EXPECT_EQ(none.out, std::vector<float>(129 * 24, 0.0f));
  // All tokens go to the same expert: only the first few count, on any rank.
  std::vector<float> same;
  for (int t = 0; t < 50; ++t) {
    const auto row = golden::row(x, 3);
    same.insert(same.end(), row.begin(), row.end());
  }
  const Tensor alike = Tensor::from(std::span<const float>(same), {50, 24});
  form.top_k = 1;
  form.capacity = 20;
  for (const char* plan :
       {"", "expert=4", "expert=8", "expert=4,moe=fused", "expert=8,moe=fused"}) {
    const Made made = run(golden.open(Precision::f32, plan), alike, form);
    EXPECT_EQ(*std::max_element(made.counts.begin(), made.counts.end()), 50);
    EXPECT_EQ(*std::max_element(made.kept.begin(), made.kept.end()), 20);
    EXPECT_TRUE(
        std::any_of(&made.out[19 * 24], &made.out[20 * 24], [](float v) { return v != 0; }));
    EXPECT_TRUE(std::all_of(&made.out[20 * 24], &made.out[50 * 24 - 1] + 1,
                            [](float v) { return v == 0; }));
  }
}

TEST(MoeLayerForward, FilesAreWritten) {
  const Case golden("moe_layer_e4");
  const golden::Scratch scratch;
  load::write_safetensors(scratch / "in.safetensors", {{"x", golden.io.get("x.7")}});
  ForwardRequest request{.component = ModelPart::moe_layer,
                         .inputs = scratch / "in.safetensors",
                         .outputs = scratch / "out.safetensors",
                         .moe = parse_moe_layer("gate=skew,top_k=2,experts=swiglu")};
  golden.open(Precision::f32, "expert=2").forward(request);
  const SafetensorsFile out(request.outputs);
  EXPECT_EQ(out.get("out").shape(), tensor::Shape({7, 24}));
  EXPECT_EQ(out.get("counts").dtype(), DType::i32);
  EXPECT_EQ(out.get("kept_counts").to_ints(), out.get("counts").to_ints());
}

TEST(MoeLayerForward, AFormIsRead) {
  const MoeLayerForm form =
      parse_moe_layer("gate=a,top_k=3,experts=gelu_tanh,renormalise=1,capacity=0");
  EXPECT_EQ(form.gate, "a");
  EXPECT_EQ(form.top_k, 3);
  EXPECT_EQ(form.experts, ExpertActivation::gelu_tanh);
  EXPECT_TRUE(form.renormalise);
  EXPECT_EQ(form.capacity, 0);
  const MoeLayerForm least = parse_moe_layer("experts=silu,gate=b,top_k=1");
  EXPECT_FALSE(least.renormalise);
  EXPECT_FALSE(least.capacity.has_value());
  for (const char* wrong :
       {"", "gate=a", "gate=a,top_k=1", "gate=a,experts=relu", "top_k=1,experts=relu",
        "gate=a,top_k=1,experts=relu,", "gate=,top_k=1,experts=relu", "gate=a,top_k=0,experts=relu",
        "gate=a,top_k=x,experts=relu", "gate=a,top_k=1,experts=tanh", "gate=a,top_k=1,experts",
        "gate=a,top_k=1,experts=relu,renormalise=2", "gate=a,top_k=1,experts=relu,capacity=-1",
        "gate=a,gate=b,top_k=1,experts=relu", "gate=a,top_k=1,experts=relu,moe=fused"})
    EXPECT_THROW(parse_moe_layer(wrong), Error) << wrong;
}

TEST(MoeLayerForward, RequestsOfAProgramAreChecked) {
  const Case golden("moe_layer_e4");
  const Tensor x = golden.io.get("x.7");
  const Model model = golden.open();
  for (const MoeLayerForm& wrong :
       {MoeLayerForm{.gate = "skew", .top_k = 0}, MoeLayerForm{.gate = "skew", .top_k = 5},
        MoeLayerForm{.gate = "none"}, MoeLayerForm{.gate = "skew", .capacity = -1},
        MoeLayerForm{.gate = "skew", .experts = static_cast<ExpertActivation>(9)}})
    EXPECT_THROW(run(model, x, wrong), Error);
  EXPECT_THROW(model.forward({.component = ModelPart::moe_layer}), Error);
  EXPECT_THROW(model.forward({.component = ModelPart::model, .moe = MoeLayerForm{}}), Error);
  EXPECT_THROW(model.generate({}), Error);
  EXPECT_THROW(model.complete({}), Error);
}

}  // namespace
}  // namespace tessera
