#include "diffusion/encode_text.h"

#include "base/fail.h"
#include "base/stopwatch.h"
#include "cluster/agree.h"
#include "diffusion/plan_text.h"
#include "diffusion/sharded_text.h"
#include "diffusion/text_encoders.h"
#include "load/held_weights.h"

namespace tessera::diffusion {

using models::TextStates;

namespace {

// Runs an encoder on a single rank.
TextStates encode_alone(const runtime::ModelState& state, const Text& text,
                        const runtime::Adapters* adapters, bool keep) {
  const std::string& part = text.part.encoder;
  std::shared_ptr<const nn::Weights> weights = state.weights_of(part);
  std::shared_ptr<const load::HeldWeights> held_weights;
  if (keep) weights = held_weights = std::make_shared<const load::HeldWeights>(weights);
  if (adapters) weights = adapters->over(part, weights, state.device());
  const auto encoder = state.load_text_encoder(part, weights);
  TextStates states = on_host(numbers_of(*encoder, encoder_batch(text), part));
  if (keep) state.loaded.kept.keep(part, held_weights->values(), text.need.kept);
  return states;
}

// Runs the folder's text encoders on the texts of a job; other processes than the first return
// nothing. Encoders are loaded in turn and released; with Job::keeps_text their packed weights
// stay.
Embeddings encode_texts(const runtime::ModelState& state, bool two, const RunControl& control,
                        Job& job) {
  const base::Stopwatch clock;
  const bool spread = state.options.plan.shard > 1, first = state.ranks().first();
  const runtime::RunMeters meters = job.counted.meters.anew();
  std::vector<TextStates> all_states;
  for (const Text& text : job.asked.texts) {
    const auto i = static_cast<int>(all_states.size()),
               count = static_cast<int>(job.asked.texts.size());
    TextStates& states = all_states.emplace_back();
    if (!text.there) continue;
    const bool changed = job.asked.adapters && job.asked.adapters->change(text.part.encoder);
    const auto* const adapters = changed ? job.asked.adapters.get() : nullptr;
    const bool keep = job.admitted.keeps_text && !changed;
    between_encoders(state, [&] {
      require(!control.stop.stop_requested(), ErrorCode::cancelled,
              "stopped before text encoder {}", i + 1);
      if (first && control.on_progress)
        control.on_progress({Phase::encode, i, count, clock.seconds()});
    });
    states = spread ? encode_sharded(state, text.part.encoder, encoder_batch(text),
                                     keep ? text.need.kept : 0, meters, control.stop,
                                     job.counted.encoded, adapters)
                    : encode_alone(state, text, adapters, keep);
  }
  if (!spread)
    job.counted.encoded.per_rank = {
        runtime::work_of(state.workers.scope(-1, &job.counted.meters), 0)};
  Embeddings embeddings;
  between_encoders(state, [&] {
    if (!first) return;
    embeddings = embeddings_of(*state.spec, job.asked.texts, all_states, two);
  });
  return embeddings;
}

}  // namespace

void encode_text(const runtime::ModelState& state, const GenerateRequest& request,
                 const RunControl& control, Job& job) {
  const bool spread = state.options.plan.shard > 1;  // then all processes agree on the ranks
  if (job.asked.texts.empty() || !(spread || encodes_text(state))) return;
  const tensor::BindScope bind(state.workers.scope(-1, &job.counted.meters));
  const bool two = branches_of(*state.spec, request, job.planned.guidance_asked).two;
  const bool first = state.ranks().first();
  if (first) job.asked.conditioning = {};
  const Embeddings embeddings = encode_texts(state, two, control, job);
  between_encoders(state, [&] {
    if (first) job.asked.conditioning = conditioning_of(state, request, embeddings, job);
  });
}

}  // namespace tessera::diffusion
