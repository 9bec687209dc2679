#include "pipeline/generate.h"

#include <sys/resource.h>

#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "admission/expected_time.h"
#include "admission/memory_plan.h"
#include "base/fail.h"
#include "base/stop.h"
#include "base/stopwatch.h"
#include "cluster/agree.h"
#include "cluster/gather_reports.h"
#include "diffusion/broadcast_conditioning.h"
#include "diffusion/decode.h"
#include "diffusion/decode_pipeline.h"
#include "diffusion/denoise.h"
#include "diffusion/encode_images.h"
#include "diffusion/encode_text.h"
#include "diffusion/parts.h"
#include "diffusion/plan_job.h"
#include "kernels/bf16_path.h"
#include "kernels/isa.h"
#include "load/safetensors.h"
#include "pipeline/check_request.h"
#include "pipeline/fingerprint.h"
#include "pipeline/run.h"
#include "runtime/former_output.h"
#include "tessera/version.h"

namespace tessera::pipeline {
namespace {

using tensor::Tensor;

Tensor timesteps_of(const sample::Sampler& sampler) {
  std::vector<float> times;
  for (int i = 0; i < sampler.steps(); ++i) times.push_back(sampler.timestep(i));
  return Tensor::from(std::span<const float>(times), {sampler.steps()});
}

// For ranks with common decoding.
void add_decoding(Report& shared, Report& report) {
  for (size_t r = 0; r < shared.per_rank.size(); ++r) {
    report.per_rank.at(r).decode_peak_bytes = shared.per_rank[r].peak_bytes;
    report.per_rank[r].decode_flops = shared.per_rank[r].flops;
  }
  shared.per_rank.clear();
  cluster::add_report(shared, report);
}

// Shows the latents; other processes than the first give their part.
void show(const runtime::ModelState& state, const RunControl& control, const diffusion::Job& job,
          const Tensor& tokens, diffusion::Trace& trace, GenerateResult& result) {
  const base::Stopwatch decoding;
  const bool first = state.ranks().first();
  diffusion::Decoded decoded;
  if (state.options.plan.vae > 1)
    decoded = diffusion::decode_in_bands(state, control, job, tokens, trace.wanted());
  else if (first)
    decoded = diffusion::decode(state, control, job, job.admitted.tiles, tokens, trace.wanted());
  if (!first) return;
  add_decoding(decoded.shared, result.report);
  if (trace.wanted()) trace.plain(state.video() ? "video" : "image", decoded.numbers);
  result.images = std::move(decoded.images);
  result.report.phase_seconds[Phase::decode] = decoding.seconds();
}

void finish_report(const runtime::ModelState& state, const diffusion::Job& job, Report& report) {
  report.version = kVersion;
  report.model = state.name;
  report.plan = to_string(state.options.plan);
  report.device = runtime::device_name(state.place);
  report.precision = state.options.precision;
  const bool routed = state.spec && !state.geometry().experts.empty();
  report.int4_experts = routed && state.int4_experts();
  report.int8_experts = routed && state.expert_dtype() == nn::DType::i8 && !report.int4_experts;
  std::vector<std::string> parts{"transformer"};
  if (job.planned.decoded_lines > 0) parts.emplace_back("vae");
  for (const diffusion::Text& text : job.asked.texts)
    if (text.there) parts.push_back(text.part.encoder);
  for (const std::string& part : parts)
    if (const auto counts = state.products_of(part); !counts.empty())
      report.products[part] = counts;
  report.instruction_set = kernels::name_of(kernels::active_isa());
  report.unit = kernels::name_of(kernels::active_bf16_path());
  report.threads = state.workers.pool->threads();
  report.ranks = state.options.plan.ranks();
  report.flops = job.counted.meters.all->total().flops;
  if (!state.ranks().all_here())  // other ranks' progress
    for (size_t rank = 1; rank < report.per_rank.size(); ++rank)
      report.flops += report.per_rank[rank].flops + report.per_rank[rank].decode_flops +
                      report.per_rank[rank].text_flops;
  report.peak_bytes = runtime::peaks_of(*job.counted.meters.memory);
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  report.peak_resident_bytes = int64_t{usage.ru_maxrss} * 1024;
}

/// The network stays in memory for a run only, for any end, unless parts are kept.
class NetworkLease {
 public:
  NetworkLease(runtime::ModelState& state, bool keeps) : state_(state), keeps_(keeps) {}
  ~NetworkLease() {
    if (!keeps_) state_.loaded.transformers.release();
  }
  NetworkLease(const NetworkLease&) = delete;
  NetworkLease& operator=(const NetworkLease&) = delete;

 private:
  runtime::ModelState& state_;
  const bool keeps_;
};

// The memory of all orders of a sequence.
std::shared_ptr<runtime::MemoryReservation> reservation(runtime::ModelState& state,
                                                        const char* subject, int64_t bytes,
                                                        int64_t stays) {
  if (!state.admitted.residence) return nullptr;
  auto lease = std::make_shared<runtime::MemoryReservation>(&*state.admitted.residence);
  admission::take_room(state, subject, bytes, stays, *lease);
  return lease;
}

// Otherwise ranks with fewer requests would miss the last ones.
void agree_on_count(const runtime::ModelState& state, size_t requests) {
  state.ranks().require_same([&] {
    cluster::RunFingerprint terms;
    terms.say("the command", "generate");  // first word of ranks with another command
    terms.say("the number of requests", std::to_string(requests));
    return terms;
  });
}

// Ranks of shard= wait for each other's parts of an encoder, and handle failures there.
bool encodes_together(const runtime::ModelState& state) { return state.options.plan.shard > 1; }

void agree_on(const runtime::ModelState& state, const GenerateRequest& request) {
  state.ranks().require_same([&] { return fingerprint_of(state, request); });
}

// All decisions before any computation, except memory.
diffusion::Job planned(runtime::ModelState& state, const GenerateRequest& request,
                       const RunControl& control, GenerateResult& result) {
  diffusion::Job job = diffusion::plan_job(state, request);
  admission::announce(state, job, request.decode, control);
  job.admitted.preview_tiles = [&state](const diffusion::Job& part) {
    return admission::preview_tiles(state, part);
  };
  result.steps = job.planned.sampler->steps();
  result.guidance = job.planned.guidance_asked;
  result.sampler = job.planned.sampler_name;
  parallel::require_runnable(state.options.plan, state.geometry(), job.workload());
  return job;
}

void tell_notes(const diffusion::Job& job, const RunControl& control, GenerateResult& result) {
  result.report.notes = job.planned.notes;
  if (control.on_note)
    for (const std::string& note : job.planned.notes) control.on_note(note);
}

// The caller's latents of all samples, and the requested files.
void finish(const runtime::ModelState& state, const GenerateRequest& request,
            const RunControl& control, const diffusion::Job& job, const Tensor& tokens,
            diffusion::Trace& trace, GenerateResult& result) {
  const Tensor latents = nn::latent_of_tokens(tokens, job.planned.layout, job.planned.form);
  result.latents = latents.to_floats();
  result.latents_shape.assign(latents.shape().begin(), latents.shape().end());
  if (trace.wanted()) trace.plain("timesteps", timesteps_of(*job.planned.sampler));
  if (!request.save_latents.empty())
    load::write_safetensors(request.save_latents, {{"latents", latents}},
                            runtime::tensors_metadata(FileKind::latents));
  trace.write(request.trace);
  finish_report(state, job, result.report);
  const std::string beyond =
      admission::beyond_budget(state.options, result.report.peak_bytes, result.report.per_rank);
  if (beyond.empty()) return;
  result.report.notes.push_back(beyond);
  if (control.on_note) control.on_note(beyond);
}

/// A request whose ranks denoise, and then decode.
class ImageRun final : public Run {
 public:
  ImageRun(runtime::ModelState& state, const GenerateRequest& request, const RunControl& control)
      : state_(state), request_(request), control_(control) {}
  GenerateResult result{};

 protected:
  void agree() override {
    job_.counted.sent_before = state_.ranks().sent();
    agree_on(state_, request_);
  }
  void admit() override;
  void announce() override {
    tell_notes(job_, control_, result);
    loaded_.emplace(state_, job_.admitted.keeps_transformer);
    if (encodes_together(state_)) diffusion::encode_text(state_, request_, control_, job_);
  }
  const char* loads() const override { return "denoises"; }
  void load() override;
  void launch() override;
  void report() override {
    result.elsewhere = !state_.ranks().first();
    if (result.elsewhere) return;
    const tensor::BindScope bind(state_.workers.scope(-1, &job_.counted.meters));
    finish(state_, request_, control_, job_, tokens_, *trace_, result);
  }

 private:
  runtime::ModelState& state_;
  const GenerateRequest& request_;
  const RunControl& control_;
  diffusion::Job job_{};
  std::optional<NetworkLease> loaded_{};
  std::optional<diffusion::Trace> trace_{};
  Tensor tokens_{};
};

void ImageRun::admit() {
  auto sent_before = std::move(job_.counted.sent_before);
  job_ = planned(state_, request_, control_, result);
  job_.counted.sent_before = std::move(sent_before);
  const admission::MemoryFit fit = admission::plan_memory(state_, request_, job_);
  job_.loaded.reservation = reservation(state_, "this run", fit.total, fit.stays);
}

void ImageRun::load() {
  if (!encodes_together(state_)) diffusion::encode_text(state_, request_, control_, job_);
  diffusion::encode_images(state_, request_, job_);
  const tensor::BindScope bind(state_.workers.scope(-1, &job_.counted.meters));
  const base::Stopwatch clock;
  if (control_.on_progress) control_.on_progress({Phase::load, 0, 0, 0});
  diffusion::load_ranks(state_, job_);
  result.report.phase_seconds[Phase::load] = clock.seconds();
}

void ImageRun::launch() {
  const tensor::BindScope bind(state_.workers.scope(-1, &job_.counted.meters));
  diffusion::broadcast_conditioning(state_, job_);
  trace_.emplace(job_, !request_.trace.empty());
  tokens_ = diffusion::denoise(state_, request_, control_, job_, *trace_, result.report);
  if (!job_.admitted.keeps_transformer) job_.loaded.networks.clear();
  if (job_.asked.adapters) job_.asked.adapters->transformers.release();
  loaded_.reset();
  if (request_.decode) show(state_, control_, job_, tokens_, *trace_, result);
}

// Admits all orders to the memory of this process together.
void admit_together(runtime::ModelState& state, std::deque<diffusion::QueuedRequest>& orders,
                    int64_t inputs) {
  std::vector<admission::MemoryFit> fits;
  for (diffusion::QueuedRequest& order : orders)
    fits.push_back(admission::plan_memory(state, order.request, order.job,
                                          inputs - admission::input_bytes(order.job)));
  const int64_t together = admission::require_overlap(state, fits, inputs);
  int64_t run_bytes = 0, stays = 0;
  for (const admission::MemoryFit& fit : fits) {
    run_bytes = std::max(run_bytes, fit.total + std::max<int64_t>(together - fit.process, 0));
    stays = std::max(stays, fit.stays);
  }
  orders.front().job.loaded.reservation = reservation(state, "this run", run_bytes, stays);
}

/// Requests whose last ranks decode, while the others denoise the next part.
class OverlappedRun final : public Run {
 public:
  OverlappedRun(runtime::ModelState& state, std::span<const GenerateRequest> requests,
                const RunControl& control)
      : state_(state),
        requests_(requests),
        control_(control),
        decodes_(diffusion::decodes_here(state)) {}
  std::vector<GenerateResult> results{};

 protected:
  void agree() override {
    sent_before_ = state_.ranks().sent();
    for (const GenerateRequest& request : requests_) agree_on(state_, request);
  }
  void admit() override;
  void announce() override {
    for (diffusion::QueuedRequest& order : orders_) tell_notes(order.job, control_, order.result);
    loaded_.emplace(state_, state_.options.keep_parts);
    if (encodes_together(state_)) encode();
  }
  const char* loads() const override { return decodes_ ? "decodes" : "denoises"; }
  void load() override;
  void launch() override;
  void report() override;

 private:
  void encode() {
    for (diffusion::QueuedRequest& order : orders_)
      diffusion::encode_text(state_, order.request, control_, order.job);
  }

  runtime::ModelState& state_;
  const std::span<const GenerateRequest> requests_;
  const RunControl& control_;
  const bool decodes_;
  comm::Ledger::Entries sent_before_{};
  std::deque<diffusion::QueuedRequest> orders_{};
  std::optional<NetworkLease> loaded_{};
  diffusion::SharedDecoder decoder_{};
};

void OverlappedRun::admit() {
  int64_t inputs = 0;
  for (const GenerateRequest& request : requests_) {
    GenerateResult result;
    diffusion::Job job = planned(state_, request, control_, result);
    job.counted.sent_before = sent_before_;
    inputs += admission::input_bytes(job);
    orders_.emplace_back(request, std::move(job), std::move(result));
  }
  admit_together(state_, orders_, inputs);
}

// Loads this process's parts: text encoders, the transformers of its ranks, and the decoder.
void OverlappedRun::load() {
  if (!encodes_together(state_)) encode();
  if (control_.on_progress) control_.on_progress({Phase::load, 0, 0, 0});
  for (diffusion::QueuedRequest& order : orders_) {
    diffusion::encode_images(state_, order.request, order.job);
    const base::Stopwatch clock;
    const runtime::RunMeters& meters = order.job.counted.meters;
    const tensor::BindScope bind(state_.workers.scope(-1, &meters));
    diffusion::load_ranks(state_, order.job);
    if (decodes_ && !decoder_.decoder)
      decoder_ = diffusion::load_decoder(state_, order.job, meters.memory);
    else
      meters.memory->add_shared(tensor::MemoryClass::weights, decoder_.weights);
    order.result.report.phase_seconds[Phase::load] = clock.seconds();
  }
}

void OverlappedRun::launch() {
  for (diffusion::QueuedRequest& order : orders_) {
    const tensor::BindScope bind(state_.workers.scope(-1, &order.job.counted.meters));
    diffusion::broadcast_conditioning(state_, order.job);
    for (const nn::Range samples : diffusion::parts_of(state_.options.plan, order.job.samples()))
      order.parts.push_back(diffusion::part_of(order.job, samples));
    if (order.parts.size() > 1) order.job.asked.conditioning = {};  // each part has its own
  }
  diffusion::run_stages(state_, control_, orders_, decoder_);
}

void OverlappedRun::report() {
  for (diffusion::QueuedRequest& order : orders_) {
    GenerateResult& result = order.result;
    result.elsewhere = !state_.ranks().first();
    result.report.phase_seconds.try_emplace(Phase::decode, 0);  // beside the next sample
    if (!result.elsewhere) {
      if (order.trace.wanted())
        order.trace.plain(state_.video() ? "video" : "image", order.decoded.numbers);
      result.images = std::move(order.decoded.images);
      finish(state_, order.request, control_, order.job, order.tokens, order.trace, result);
    }
    results.push_back(std::move(result));
  }
}

}  // namespace

void check(runtime::ModelState& state, const GenerateRequest& request,
           const std::stop_token& stop) {
  check_request(request);
  const base::BindStop bind(stop);
  diffusion::Job job = diffusion::plan_job(state, request);
  parallel::require_runnable(state.options.plan, state.geometry(), job.workload());
  admission::require_memory(state, request, job);
}

GenerateResult generate(runtime::ModelState& state, const GenerateRequest& request,
                        const RunControl& control) {
  return std::move(generate(state, {&request, 1}, control).front());
}

std::vector<GenerateResult> generate(runtime::ModelState& state,
                                     std::span<const GenerateRequest> requests,
                                     const RunControl& control) {
  for (const GenerateRequest& request : requests) check_request(request);
  const cluster::ExclusiveRequest exclusive(state.ranks(), state.name);
  const base::BindStop stop(control.stop);
  agree_on_count(state, requests.size());
  if (requests.empty()) return {};
  if (state.options.plan.vae_apart) {
    OverlappedRun run(state, requests, control);
    run.on(state.ranks());
    return std::move(run.results);
  }
  std::vector<GenerateResult> results;
  for (const GenerateRequest& request : requests) {
    ImageRun run(state, request, control);
    run.on(state.ranks());
    results.push_back(std::move(run.result));
  }
  return results;
}

}  // namespace tessera::pipeline
