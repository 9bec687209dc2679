#include "parallel/decode.h"

#include <algorithm>
#include <span>

#include "base/fail.h"
#include "comm/collectives.h"
#include "ops/elementwise.h"
#include "ops/finite.h"

namespace tessera::parallel {
namespace {

using nn::Range;
using tensor::Tensor;

// For a split pass: the last hidden states of the decided tokens travel, because they are smaller
// than logits. Every rank then computes all logits.
Tensor shared_logits(const nn::TokenModel& model, const Tensor& stream,
                     const sample::TokenPass& pass, const Setup& setup) {
  const Range run = setup.partition.run(setup.rank);
  std::vector<Tensor> parts;
  for (const Range& place : places_of(pass.view.body, pass.decide)) {
    const Range overlap{std::max(place.begin, run.begin), std::min(place.end, run.end)};
    if (overlap.size() > 0)
      parts.push_back(stream.slice(0, overlap.begin - run.begin, overlap.end - run.begin));
  }
  const Tensor own_rows = parts.empty() ? stream.slice(0, 0, 0) : ops::concat_rows(parts);
  const Tensor all_rows = ops::concat_rows(
      comm::all_gather(*setup.token_group, own_rows.contiguous(), {"decide", -1}).wait());
  nn::TokenView decide_view{pass.view.patch, pass.view.sequences, {}, pass.decide, {}};
  for (const nn::Segment& s : pass.decide) decide_view.lengths.push_back(s.ids.end);
  return model.logits({.tokens = {.prefix = {}, .body = all_rows}, .skips = {}}, decide_view,
                      pass.decide);
}

// Logits on the model's device, all finite; otherwise the pass is repeated to find the
// first block with NaN or infinity. All ranks check together, so no rank waits for
// another.
Tensor checked_forward(const nn::TokenModel& model, const sample::TokenPass& pass, Setup& setup) {
  bool look = false;
  const bool alone = !setup.world || setup.world->size() == 1;
  const auto check = [&](int blocks, const Tensor& stream) {
    // On the host of a single rank the check is cheap compared with a block.
    if (!look && !(alone && stream.device() == tensor::Device::cpu)) return;
    int64_t spoilt = ops::all_finite(stream) ? 0 : 1;
    if (!alone) comm::all_reduce_max(*setup.world, {&spoilt, 1}, comm::kControl);
    if (spoilt != 0)
      ops::fail_not_finite(blocks == 0 ? "the embedding" : fmt::format("block {}", blocks - 1));
  };
  const Tensor logits = forward(model, pass, setup, check);
  if (ops::all_finite(logits)) return logits;
  look = true;
  ops::require_finite(forward(model, pass, setup, check), "the head");
  return logits;
}

}  // namespace

Tensor forward(const nn::TokenModel& model, const sample::TokenPass& pass, Setup& setup,
               const std::function<void(int blocks, const Tensor& stream)>& watch) {
  setup.begin_pass(pass.index, pass.view);
  const Range run = setup.partition.run(setup.rank);
  require(static_cast<int64_t>(pass.ids.size()) == nn::token_count(pass.view.body),
          ErrorCode::usage, "{} token ids for {} positions", pass.ids.size(),
          nn::token_count(pass.view.body));
  const auto own_ids =
      std::span(pass.ids).subspan(static_cast<size_t>(run.begin), static_cast<size_t>(run.size()));
  const nn::PlacementPtr placement = model.place(setup.view());
  nn::Hidden hidden = placement->view.canvas.empty()
                          ? model.embed(own_ids, placement->view)
                          : model.embed_canvas(own_ids, placement->view, pass.earlier);
  const Tensor& stream = hidden.tokens.body;
  if (watch) watch(0, stream);
  for (auto b = static_cast<int>(setup.blocks.begin); b < setup.blocks.end; ++b) {
    model.block(b, {}, *placement, hidden, setup.seams());
    if (setup.world) setup.world->advance();
    if (watch) watch(b + 1, stream);
  }
  return setup.peers ? shared_logits(model, stream, pass, setup)
                     : model.logits(hidden, placement->view, pass.decide);
}

std::vector<sample::Decoded> decode(const nn::TokenModel& model,
                                    const std::vector<sample::TokenPrompt>& prompts,
                                    const sample::DecodingPolicy& policy,
                                    const sample::SpecialIds& special, Setup& setup,
                                    const sample::DecodeControl& control) {
  const auto& sites = model.geometry().attention;
  const bool block_causal = !sites.empty() && sites.front().causal_block > 0;
  sample::DecodeControl watch = control;
  int passes = 0;
  if (setup.world) watch.stop = {};
  std::vector<int64_t> lengths = sample::sequence_lengths(prompts, policy, block_causal);
  watch.ended = [&](int sequence, const sample::Decoded& result) {
    lengths[static_cast<size_t>(sequence)] = 0;
    if (control.ended) control.ended(sequence, result);
  };
  if (control.join)
    watch.join = [&] {
      auto more = control.join();
      if (more.empty()) return more;
      for (const int64_t length : sample::sequence_lengths(more, policy, block_causal))
        lengths.push_back(length);
      setup.cache->slots().renew(nn::sequences_of_lengths(lengths));
      return more;
    };
  watch.before = [&](const std::vector<sample::SequencePass>& sequences) {
    if (setup.world)
      require(setup.go_on(control.stop) && !control.stop.stop_requested(), ErrorCode::cancelled,
              "stopped after {} passes", passes);
    ++passes;
    if (control.before) control.before(sequences);
  };
  auto out = sample::decode(
      prompts, policy, special, block_causal,
      [&](const sample::TokenPass& pass) { return checked_forward(model, pass, setup); }, watch);
  setup.finish();
  return out;
}

}  // namespace tessera::parallel
