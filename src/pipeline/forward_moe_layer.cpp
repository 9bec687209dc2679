#include "pipeline/forward_moe_layer.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string_view>

#include "base/fail.h"
#include "base/printable.h"
#include "cluster/agree.h"
#include "comm/collectives.h"
#include "load/meta_weights.h"
#include "load/weights_file.h"
#include "models/moe_layer.h"
#include "ops/elementwise.h"
#include "ops/finite.h"
#include "parallel/experts/launch_limits.h"
#include "parallel/setup.h"
#include "runtime/launch.h"
#include "tensor/uncounted.h"
#include "tessera/words.h"

namespace tessera {
namespace {

constexpr int64_t kMostTaken = int64_t{1} << 40;
constexpr const char* kForm = "gate=NAME,top_k=K,experts=FORM[,renormalise=0|1][,capacity=C]";

int64_t whole(const std::string& name, const std::string& text, int64_t least, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(
      error == std::errc() && end == text.data() + text.size() && value >= least && value <= most,
      ErrorCode::usage, "`moe` {}={}: expected a whole number from {} to {}", name,
      base::printable(text), least, most);
  return value;
}

void read_entry(const std::string& name, const std::string& text, MoeLayerForm& form) {
  if (name == "gate") {
    require(!text.empty(), ErrorCode::usage, "`moe` gate=: name a router of the folder");
    form.gate = text;
  } else if (name == "top_k") {
    form.top_k = static_cast<int>(whole(name, text, 1, 1 << 20));
  } else if (name == "experts") {
    form.experts = choice_of<ExpertActivation>(text, "`moe` experts");
  } else if (name == "renormalise") {
    form.renormalise = whole(name, text, 0, 1) == 1;
  } else if (name == "capacity") {
    form.capacity = whole(name, text, 0, kMostTaken);
  } else {
    fail(ErrorCode::usage, "`moe` has no entry {}; write {}", base::printable(name), kForm);
  }
}

}  // namespace

MoeLayerForm parse_moe_layer(const std::string& text) {
  MoeLayerForm form;
  std::set<std::string> names;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, end - at), name = item.substr(0, item.find('='));
    require(name.size() < item.size(), ErrorCode::usage, "`moe` entry {} has no value; write {}",
            base::printable(item), kForm);
    require(names.insert(name).second, ErrorCode::usage, "`moe` entry {} stands twice",
            base::printable(name));
    read_entry(name, item.substr(name.size() + 1), form);
    at = end + 1;
  }
  for (const char* name : {"gate", "top_k", "experts"})
    require(names.contains(name), ErrorCode::usage, "`moe` lacks '{}'; write {}", name, kForm);
  return form;
}

namespace pipeline {
namespace {

using tensor::DType;
using tensor::Tensor;
using Tensors = std::map<std::string, Tensor>;
using Counts = std::vector<int64_t>;

// A layer to run, and its results.
struct Job {
  const runtime::ModelState& state;
  const MoeLayerForm& form;
  const nn::Geometry geometry;
  Tensor x;                                // for all ranks
  std::map<int, models::MoeLayer> layers;  // by rank, in this process
  Tensor out{};
  Counts counts{}, kept_counts{};

  void run(comm::Communicator* world);
};

void check_gate(const MoeLayerForm& form, const load::TensorSet& tensors, const std::string& gate) {
  std::vector<std::string> gates;
  for (const std::string& name : tensors.names())
    if (name.starts_with("gate.") && name.ends_with(".weight"))
      gates.push_back(name.substr(5, name.size() - 12));
  require(tensors.has(gate), ErrorCode::usage, "`moe` gate={}: there is no tensor {}; gates are {}",
          base::printable(form.gate), base::printable(gate), fmt::join(gates, ", "));
}

// Names and shapes of the form's tensors; others in the folder belong to other forms.
void check_tensors(const Job& job, const load::TensorSet& tensors, const std::string& folder) {
  const tensor::Uncounted aside;
  const load::MetaWeights meta_weights(tensors);
  check_gate(job.form, tensors, models::gate_of(job.form, meta_weights));
  nn::Portion names;  // nothing is packed, for any number of announced experts
  names.experts.resize(static_cast<size_t>(job.state.layer->experts));
  const models::MoeLayer layer(*job.state.layer, job.form, meta_weights, names, job.state.dtype());
  const std::string other_names[] = {"*"};
  (void)load::check_names(meta_weights, tensors, folder, other_names);
}

void check_plan(const Plan& plan, const nn::Geometry& geometry, tensor::Device device) {
  Plan allowed;
  allowed.data = allowed.expert = plan.expert;
  allowed.moe = plan.moe;
  allowed.placement = plan.placement;
  allowed.placement_list = plan.placement_list;
  require(plan == allowed, ErrorCode::plan,
          "the plan '{}' cannot run: a moe_layer takes expert=N, moe= and placement= alone",
          to_string(plan));
  const std::string problem =
      tensor::is_gpu(device) ? parallel::launch_problem(plan, geometry) : "";
  require(problem.empty(), ErrorCode::plan, "the plan cannot run: {}", problem);
  parallel::require_runnable(plan, geometry, {.text = parallel::Workload::Sequences{}});
}

Tensor input_of(const Tensors& inputs, int64_t hidden, const std::string& file) {
  for (const auto& [name, x] : inputs)
    require(name == "x", ErrorCode::usage, "'{}' holds {}; a moe_layer takes x [tokens, {}] alone",
            file, base::printable(name), hidden);
  const auto it = inputs.find("x");
  require(it != inputs.end(), ErrorCode::usage,
          "'{}' holds no tensor 'x'; a moe_layer takes x [tokens, {}]", file, hidden);
  const Tensor& x = it->second;
  require(x.rank() == 2 && x.size(1) == hidden && tensor::is_float(x.dtype()), ErrorCode::usage,
          "'{}': 'x' is {} of {}; expected floats [tokens, {}]", file, x.shape().str(),
          tensor::name_of(x.dtype()), hidden);
  require(ops::all_finite(x), ErrorCode::usage, "'{}': 'x' holds NaN or infinity; expected numbers",
          file);
  return x;
}

void count(const Tensor& routed, Counts& counts) {
  const Tensor ids = routed.to(tensor::Device::cpu);
  for (const int64_t expert : ids.to_ints())
    if (expert >= 0) ++counts.at(static_cast<size_t>(expert));
}

Tensor whole_numbers(const Counts& counts) {
  const std::vector<int32_t> values(counts.begin(), counts.end());
  return Tensor::from(std::span<const int32_t>(values), {static_cast<int64_t>(values.size())});
}

// A rank's share.
void Job::run(comm::Communicator* world) {
  const int64_t tokens = x.size(0);
  parallel::Setup setup(state.options.plan, geometry, {.text = {{{tokens}, {}, form.capacity}}},
                        world);
  const auto experts = static_cast<size_t>(geometry.experts.front().experts);
  Counts all_counts(experts), accepted(experts);
  setup.experts->log().watch([&](const nn::MoeWork& work) {
    count(work.routing.ids, accepted);
    if (form.capacity) count(work.gate.router()(work.tokens).ids, all_counts);
  });
  setup.begin_pass(
      0, {.sequences = {0}, .prefix = {}, .body = {{0, {0, tokens}}}, .lengths = {tokens}});
  const nn::Range own_run = setup.partition.run(setup.rank);
  const models::MoeLayer& layer = layers.at(setup.rank);
  Tensor rows = setup.experts->apply(0, setup.view(), x.slice(0, own_run.begin, own_run.end),
                                     layer.router, layer.experts);
  setup.finish();
  if (!form.capacity) all_counts = accepted;
  if (world) {
    comm::all_reduce(*world, all_counts, {"counts", -1});
    comm::all_reduce(*world, accepted, {"counts", -1});
    const std::vector<Tensor> parts = comm::gather(*world, 0, rows.contiguous(), {"out", -1});
    if (world->rank() != 0) return;
    rows = ops::concat_rows(parts);
  }
  out = ops::cast(rows, DType::f32).to(tensor::Device::cpu).contiguous();
  counts = std::move(all_counts);
  kept_counts = std::move(accepted);
}

}  // namespace

Tensors forward_moe_layer(const runtime::ModelState& state, const Tensors& inputs,
                          const ForwardRequest& request, const RunControl& control) {
  const MoeLayerForm& form = *request.moe;
  const Plan& plan = state.options.plan;
  require(!request.trace, ErrorCode::usage, "a moe_layer has no blocks; leave out `trace`");
  Job job{state, form, models::geometry_of(*state.layer, form), {}, {}};
  check_plan(plan, job.geometry, state.device());
  const load::Component& part = state.folder.component("model");
  const load::TensorSet tensors = load::open_weights(part);
  check_tensors(job, tensors, part.folder);
  const Tensor x = input_of(inputs, state.layer->hidden,
                            request.inputs.empty() ? "the request" : request.inputs);
  job.x = ops::cast(x.to(state.device()), state.dtype());
  const auto weights = runtime::weight_store().open(tensors, state.device());
  state.ranks().all_or_none("loads its part", [&] {
    for (const int rank : state.ranks().mine(plan.world())) {
      nn::Portion portion = parallel::portion_of(plan, job.geometry, rank);
      portion.expert_dtype = state.expert_dtype();
      job.layers.try_emplace(rank, *state.layer, form, *weights, portion, state.dtype());
    }
  });
  runtime::launch_ranks(state, runtime::RunMeters(state.workers.ranks.size()), control.stop,
                        [&](comm::Communicator* world) { job.run(world); });
  if (!state.ranks().first()) return {};
  ops::require_finite(job.out, "the layer");
  return {{"out", job.out},
          {"counts", whole_numbers(job.counts)},
          {"kept_counts", whole_numbers(job.kept_counts)}};
}

}  // namespace pipeline
}  // namespace tessera
