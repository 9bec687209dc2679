#include "pipeline/forward_tokens.h"

#include <algorithm>

#include "admission/token_memory.h"
#include "base/fail.h"
#include "base/printable.h"
#include "cluster/agree.h"
#include "comm/collectives.h"
#include "completion/options.h"
#include "completion/streamed_experts.h"
#include "ops/elementwise.h"
#include "parallel/decode.h"
#include "runtime/launch.h"

namespace tessera::pipeline {
namespace {

using tensor::DType;
using tensor::Tensor;
using Tensors = std::map<std::string, Tensor>;

// The inputs of the model: ids of all sequences, the valid tokens of each, and the block
// length.
struct TokenInputs {
  std::vector<int32_t> ids;  // ids of valid tokens
  std::vector<int64_t> visible;
  int64_t batch = 0, length = 0;
  int block = 0;
  bool unbatched = false;         // the file had no batch axis
  std::vector<int32_t> canvas{};  // after the ids; none: logits of the text
  Tensor earlier{};               // condition of the canvas; undefined: a first pass
};

std::vector<int64_t> zeros_and_ones(const Tensor& mask) {
  std::vector<int64_t> values;
  for (const float value : mask.to_floats()) {
    require(value == 0 || value == 1, ErrorCode::usage,
            "'attention_mask' holds {}; expected 1 (seen) or 0", value);
    values.push_back(static_cast<int64_t>(value));
  }
  return values;
}

// [batch, tokens]: ones, then zeros.
void read_padding(const Tensor& mask, TokenInputs& request) {
  const auto values = zeros_and_ones(mask);
  for (int64_t r = 0; r < request.batch; ++r) {
    const auto first = values.begin() + r * request.length, last = first + request.length;
    const auto zero = std::find(first, last, 0);
    require(zero != first && std::find(zero, last, 1) == last, ErrorCode::usage,
            "'attention_mask' of sequence {}: expected ones, then zeros", r);
    request.visible[static_cast<size_t>(r)] = zero - first;
  }
}

// [batch, 1, tokens, tokens]: for block-causal models; the first line gives the block length.
void read_blocks(const Tensor& mask, bool block_causal, TokenInputs& request) {
  const auto values = zeros_and_ones(mask);
  const int64_t n = request.length;
  const int64_t block = std::find(values.begin(), values.begin() + n, 0) - values.begin();
  const bool whole = block == n;
  bool fits = block > 0 && (block_causal || whole);
  for (int64_t r = 0; fits && r < request.batch; ++r)
    for (int64_t i = 0; fits && i < n * n; ++i)
      fits = (values[static_cast<size_t>(r * n * n + i)] == 1) == (i % n / block <= i / n / block);
  require(fits, ErrorCode::usage, "'attention_mask' [batch, 1, tokens, tokens] is not that of {}",
          block_causal ? "blocks of one length that see themselves and those before"
                       : "a bidirectional model, where every token sees all");
  if (block_causal) request.block = static_cast<int>(block);
}

void read_mask(const Tensor& mask, bool block_causal, TokenInputs& request) {
  const int64_t r = request.batch, n = request.length;
  if (mask.shape() == tensor::Shape{r, n} ||
      (request.unbatched && mask.shape() == tensor::Shape{n}))
    return read_padding(mask, request);
  require(mask.shape() == tensor::Shape{r, 1, n, n}, ErrorCode::usage,
          "'attention_mask' is {}; expected [{}, {}], or [{}, 1, {}, {}]", mask.shape().str(), r, n,
          r, n, n);
  read_blocks(mask, block_causal, request);
}

void check_positions(const Tensor& positions, const TokenInputs& request) {
  const auto values = positions.to_ints();
  bool plain = !values.empty() && static_cast<int64_t>(values.size()) % request.length == 0;
  for (size_t i = 0; plain && i < values.size(); ++i)
    plain = values[i] == static_cast<int64_t>(i) % request.length;
  require(plain, ErrorCode::usage,
          "'position_ids' are not 0, 1, 2, ...: other positions are not supported; leave them out");
}

bool is_canvas_input(const std::string& name) {
  return name == "input_ids" || name == "canvas_ids" || name == "self_conditioning_logits";
}

// canvas_ids [tokens], self_conditioning_logits [tokens, vocabulary] after a sequence.
void read_canvas(const Tensors& inputs, const models::TokenSpec& spec, TokenInputs& request) {
  const auto ids = inputs.find("canvas_ids");
  const auto earlier = inputs.find("self_conditioning_logits");
  if (ids == inputs.end()) {
    require(earlier == inputs.end(), ErrorCode::usage,
            "self_conditioning_logits condition a canvas; give canvas_ids too");
    return;
  }
  const Tensor& x = ids->second;
  require(request.batch == 1 && !tensor::is_float(x.dtype()) && x.elements() > 0 &&
              (x.rank() == 1 || (x.rank() == 2 && x.size(0) == 1)),
          ErrorCode::usage, "canvas_ids is {}; expected whole numbers [tokens], of one sequence",
          x.shape().str());
  for (const int64_t id : x.to_ints()) {
    require(id >= 0 && id < spec.vocabulary, ErrorCode::usage,
            "canvas_ids holds {}, which is outside the vocabulary of {}", id, spec.vocabulary);
    request.canvas.push_back(static_cast<int32_t>(id));
  }
  const auto tokens = static_cast<int64_t>(request.canvas.size());
  require(request.length + tokens <= spec.context, ErrorCode::usage,
          "{} tokens and a canvas of {} do not fit the context of {}", request.length, tokens,
          spec.context);
  if (earlier == inputs.end()) return;
  const Tensor& logits = earlier->second;
  require(tensor::is_float(logits.dtype()) && logits.elements() == tokens * spec.vocabulary &&
              logits.rank() >= 2 && logits.size(-1) == spec.vocabulary,
          ErrorCode::usage, "self_conditioning_logits is {}; expected floats [{}, {}]",
          logits.shape().str(), tokens, spec.vocabulary);
  request.earlier = ops::cast(logits.reshape({tokens, spec.vocabulary}), DType::f32);
}

TokenInputs read(const Tensors& inputs, const models::TokenSpec& spec) {
  for (const auto& [name, x] : inputs)
    require(spec.canvas ? is_canvas_input(name)
                        : name == "input_ids" || name == "attention_mask" || name == "position_ids",
            ErrorCode::usage,
            "this language model takes no {}; it takes input_ids, and may take {}",
            base::printable(name),
            spec.canvas ? "canvas_ids and self_conditioning_logits"
                        : "attention_mask and position_ids");
  const auto ids = inputs.find("input_ids");
  require(ids != inputs.end() && !tensor::is_float(ids->second.dtype()) &&
              (ids->second.rank() == 1 || ids->second.rank() == 2) && ids->second.elements() > 0,
          ErrorCode::usage,
          "a language model takes whole numbers input_ids [batch, tokens] or [tokens]");
  TokenInputs request;
  const Tensor& x = ids->second;
  request.unbatched = x.rank() == 1;
  request.batch = request.unbatched ? 1 : x.size(0);
  request.length = x.size(-1);
  require(request.length <= spec.context, ErrorCode::usage,
          "input_ids has {} tokens a sequence, which do not fit the context of {}", request.length,
          spec.context);
  request.visible.assign(static_cast<size_t>(request.batch), request.length);
  request.block = spec.block_causal && !spec.canvas ? spec.block : 0;
  read_canvas(inputs, spec, request);
  if (const auto mask = inputs.find("attention_mask"); mask != inputs.end())
    read_mask(mask->second, spec.block_causal, request);
  if (const auto positions = inputs.find("position_ids"); positions != inputs.end())
    check_positions(positions->second, request);
  const auto values = x.to_ints();
  for (size_t i = 0; i < values.size(); ++i) {
    require(values[i] >= 0 && values[i] < spec.vocabulary, ErrorCode::usage,
            "input_ids holds {}, which is outside the vocabulary of {}", values[i],
            spec.vocabulary);
    const auto sequence = static_cast<int64_t>(i) / request.length;
    if (static_cast<int64_t>(i) % request.length < request.visible[static_cast<size_t>(sequence)])
      request.ids.push_back(static_cast<int32_t>(values[i]));
  }
  return request;
}

// Packed rows [valid tokens, width] -> f32 [batch, tokens, width], zeros elsewhere.
Tensor spread(const Tensor& packed, const TokenInputs& request) {
  const int64_t width = packed.size(1), n = request.length;
  const Tensor x = ops::cast(packed.to(tensor::Device::cpu), DType::f32).contiguous();
  Tensor out = Tensor::zeros({request.batch * n, width}, DType::f32);
  int64_t at = 0;
  for (int64_t r = 0; r < request.batch; ++r) {
    const int64_t count = request.visible[static_cast<size_t>(r)];
    tensor::copy_into(out.slice(0, r * n, r * n + count), x.slice(0, at, at + count));
    at += count;
  }
  return request.unbatched ? out : out.reshape({request.batch, n, width});
}

// The rows of all ranks of a pass, at the first; elsewhere those of this rank.
Tensor gathered_rows(comm::Communicator& holders, const Tensor& own_rows) {
  const auto parts =
      comm::gather(holders, 0, own_rows.contiguous(), {"gather", -1, TrafficKind::report});
  return parts.empty() ? own_rows : ops::concat_rows(parts);
}

/// A pass of the network, by all ranks of the plan.
struct Pass {
  runtime::ModelState& state;
  const TokenInputs& request;
  int64_t experts = 0;       // experts in memory, as in TokenRun
  sample::TokenPass text{};  // read before the canvas, if any
  sample::TokenPass token_pass{};
  bool trace = false;
  std::stop_token stop{};
  runtime::RunMeters meters{};
  std::vector<std::shared_ptr<const nn::TokenModel>> networks{};  ///< by rank, in this process
  Tensors outputs{};

  void load();
  void run(comm::Communicator* world);
};

void Pass::load() {
  const Plan& plan = state.options.plan;
  networks.resize(static_cast<size_t>(plan.world()));
  for (const int rank : state.ranks().mine(plan.world())) {
    networks[static_cast<size_t>(rank)] =
        state.language->model(request.block, state.dtype(), runtime::weight_store(), rank,
                              completion::token_portion(state, state.options, rank, experts > 0),
                              state.workers.scope(rank, &meters).memory);
  }
}

void Pass::run(comm::Communicator* world) {
  const int rank = world ? world->rank() : 0;
  const nn::TokenModel& model = *networks.at(static_cast<size_t>(rank));
  const nn::SelectionRule& routing = state.language->spec().routing;
  parallel::Residence weights;
  if (experts > 0)
    weights.experts =
        completion::expert_cache(state, completion::resident_experts(state, experts, rank), false);
  std::vector<int64_t> lengths = request.visible;
  lengths.front() += std::ssize(request.canvas);
  parallel::Setup setup(state.options.plan, model.geometry(), {.text = {{lengths, routing}}}, world,
                        weights);
  std::map<int, nn::Range> ranges;
  for (const int sequence : token_pass.view.sequences) ranges[sequence] = nn::kAllTokens;
  setup.policy->restrict_to(ranges);
  require(setup.go_on(stop), ErrorCode::cancelled, "stopped before the first block");
  const auto output_of = [&](const Tensor& rows) {
    if (request.canvas.empty()) return spread(rows, request);
    return ops::cast(rows.to(tensor::Device::cpu), DType::f32).contiguous();
  };
  const auto show = [&](int blocks, const Tensor& stream) {
    const Tensor whole = setup.token_group ? gathered_rows(*setup.token_group, stream) : stream;
    if (setup.rank == 0) outputs[fmt::format("hidden.{}", blocks)] = output_of(whole);
  };
  if (!request.canvas.empty()) parallel::forward(model, text, setup, {});
  const Tensor logits =
      parallel::forward(model, token_pass, setup, [&](int blocks, const Tensor& stream) {
        if (trace) show(blocks, stream);
        const bool single_process = state.ranks().all_here();
        require(!single_process || blocks == setup.blocks.end || !stop.stop_requested(),
                ErrorCode::cancelled, "stopped before block {}", blocks);
      });
  setup.finish();
  if (setup.rank != 0) return;
  outputs["logits"] = outputs["out"] = output_of(logits);
}

sample::TokenPass canvas_pass(const TokenInputs& request) {
  const int64_t begin = request.length, end = begin + std::ssize(request.canvas);
  sample::TokenPass pass{.index = 1, .ids = request.canvas};
  pass.view.sequences = {0};
  pass.view.body = pass.decide = {{0, {begin, end}}};
  pass.view.lengths = {end};
  pass.view.canvas = {begin};
  if (request.earlier.defined()) pass.earlier = {pass.view.body, request.earlier};
  return pass;
}

}  // namespace

Tensors forward_tokens(runtime::ModelState& state, const Tensors& inputs, bool trace,
                       const std::stop_token& stop) {
  const models::TokenSpec& spec = state.language->spec();
  const TokenInputs request = read(inputs, spec);
  require(spec.routing.block == 0 || request.block % spec.routing.block == 0, ErrorCode::usage,
          "'attention_mask' is of blocks of {} tokens; this model shares experts among {}: "
          "expected a multiple of that",
          request.block, spec.routing.block);
  completion::check_token_plan(state);
  completion::TokenRun run{request.visible, request.length, request.block};
  Pass pass{state, request};
  pass.token_pass.ids = request.ids;
  for (int r = 0; r < static_cast<int>(request.batch); ++r) {
    const int64_t count = request.visible[static_cast<size_t>(r)];
    pass.token_pass.view.sequences.push_back(r);
    pass.token_pass.view.body.push_back({r, {0, count}});
    pass.token_pass.view.lengths.push_back(count);
  }
  pass.token_pass.decide = pass.token_pass.view.body;
  if (!request.canvas.empty()) {
    pass.text = std::move(pass.token_pass);
    pass.text.decide.clear();
    pass.token_pass = canvas_pass(request);
    run.prefill = {request.length};
    run.canvas = spec.vocabulary;
    run.block = static_cast<int>(request.canvas.size());
    run.decided = run.block;
    run.lengths = {request.length + run.decided};
  }
  pass.trace = trace;
  pass.stop = stop;
  pass.meters = runtime::RunMeters(state.workers.ranks.size());
  state.ranks().all_or_none("loads its part", [&] {
    admission::plan_tokens(state, run);
    pass.experts = run.experts;
    pass.load();
  });
  runtime::launch_ranks(state, pass.meters, stop,
                        [&](comm::Communicator* world) { pass.run(world); });
  return std::move(pass.outputs);
}

}  // namespace tessera::pipeline
