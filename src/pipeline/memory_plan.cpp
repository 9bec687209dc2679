#include "pipeline/memory_plan.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "base/machine_memory.h"
#include "load/meta_weights.h"
#include "nn/local_spatial.h"
#include "parallel/setup.h"
#include "pipeline/streamed.h"

namespace tessera::pipeline {
namespace {

using tensor::Device;
using tensor::DType;
using tensor::Tensor;
using Tiles = std::optional<models::Tiling>;

std::string too_large(int64_t bytes, int64_t weights, int64_t activations, const Room& room,
                      const std::string& remedy) {
  return fmt::format("this run would need about {} (weights {}, activations {}), {}: {}",
                     amount(double(bytes)), amount(double(weights)), amount(double(activations)),
                     room.allows, remedy);
}

[[noreturn]] void refuse(const Need& need, const Room& room, const char* remedy) {
  fail(ErrorCode::memory, "{}", too_large(need.peak, need.weights, need.activations, room, remedy));
}

// More ranks with fewer experts each, or a budget that would do.
std::string remedy_of(const ModelState& state, const Job& job, int64_t least, const Room& room) {
  const Plan& plan = state.options.plan;
  const auto sites = state.geometry().experts;
  const int most = sites.empty() || plan.data != plan.expert ? 0 : sites.front().experts;
  for (int ranks = 2 * plan.expert; state.options.processes && ranks <= most; ranks *= 2) {
    ModelState wider;
    set_stage(state, wider);
    wider.options.processes = state.options.processes;
    wider.options.plan.expert = wider.options.plan.data = ranks;
    wider.options.plan.placement = ExpertPlacement::blocks;
    if (!parallel::problems(wider.options.plan, wider.geometry(), job.workload()).empty()) continue;
    const int64_t bytes = rehearse(wider, job).process;
    if (bytes <= room.bytes)
      return fmt::format("--plan {} needs {} a rank", to_string(wider.options.plan),
                         amount(double(bytes)));
  }
  const char* const smaller = "use a smaller size or --count";
  if (state.options.memory_budget == 0) return smaller;
  return fmt::format("it fits into --memory-budget {:.1f}MB; else {}",
                     std::ceil(double(least) / 1e5) / 10, smaller);
}

void plan_tiles(const ModelState& state, const GenerateRequest& request, const Room& room,
                Job& job) {
  const int64_t factor = state.vae_factor();
  const bool asked = request.vae_tiling == VaeTiling::on;
  if (asked) job.tiles = vae_tiles(state, request.vae_tile);
  if (request.vae_tiling == VaeTiling::automatic)
    job.tiles = fitting_tiles(state, job.layout, room);
  const Need need = decode_need(state.vae(), state.dtype(), job.layout, job.tiles);
  if (need.peak > room.bytes) refuse(need, room, "let --vae-tiling be auto, or use a smaller size");
  if (!job.tiles) return;
  const bool one =
      job.layout.size[1] <= job.tiles->height.size && job.layout.size[2] <= job.tiles->width.size;
  job.notes.push_back(
      fmt::format("decodes {} of {} x {} pixels{}",
                  one ? "in one tile, which would hold an image" : "in tiles with blended seams,",
                  job.tiles->width.size * factor, job.tiles->height.size * factor,
                  asked ? "" : ": whole latents would not fit into " + amount(double(room.bytes))));
}

}  // namespace

std::string amount(double bytes) {
  return bytes >= 1e9 ? fmt::format("{:.1f} GB", bytes / 1e9)
                      : fmt::format("{:.1f} MB", bytes / 1e6);
}

Room room_of(const ModelState& state, int64_t held) {
  const int64_t budget = state.options.memory_budget;
  const std::string beside =
      held > 0 ? fmt::format(", and the run holds {} of them", amount(double(held))) : "";
  if (budget > 0)
    return {budget - held, "--memory-budget allows " + amount(double(budget)) + beside};
  if (state.device() != Device::cpu) {  // what is held is not free
    const auto have = static_cast<double>(free_device_memory());
    return {static_cast<int64_t>(0.95 * have), "the GPU has " + amount(have)};
  }
  const Processes* const processes = state.options.processes;
  const int sharing = processes ? std::max(1, processes->on_this_machine()) : 1;
  const double have = static_cast<double>(base::usable_memory()) / sharing;
  return {
      static_cast<int64_t>(0.95 * have) - held,
      "the machine has " + amount(have) + (sharing > 1 ? " for each of its ranks" : "") + beside};
}

Tiles fitting_tiles(const ModelState& state, const nn::TokenLayout& layout, const Room& room) {
  const models::VaeSpec vae = state.vae();
  const auto need = [&](const Tiles& tiles) {
    return decode_need(vae, state.dtype(), layout, tiles);
  };
  const Need whole = need({});
  if (whole.peak <= room.bytes) return {};
  Need last = whole;
  for (const int64_t pixels : {0, 1024, 512, 256, 128}) {
    const Tiles tiles = vae_tiles(state, pixels);
    last = need(tiles);
    if (last.peak <= room.bytes) return tiles;
  }
  refuse(last, room, "use a smaller size");
}

Fit fit_transformer(const ModelState& state, Job& job) {
  const Room room = room_of(state);
  job.resident_blocks = -1;
  Fit fit{rehearse(state, job), ""};
  const auto refused = [&](int64_t weights, int64_t rest) {
    fit.problem =
        too_large(weights + rest, weights, rest, room, remedy_of(state, job, weights + rest, room));
    return fit;
  };
  if (fit.need.process <= room.bytes) return fit;
  int64_t weights = 0;
  for (const Inspection::Rank& rank : fit.need.ranks) weights = std::max(weights, rank.weights);
  const int64_t rest = fit.need.process - weights;
  if (state.options.plan.world() > 1) return refused(weights, rest);
  const PartWeights parts = part_weights(*state.spec, state.dtype());
  // Where none seem to fit, their peak and that of activations still need not meet.
  job.resident_blocks = std::max<int64_t>(resident_blocks(parts, room.bytes - rest), 0);
  for (;; --job.resident_blocks) {
    fit.need = rehearse(state, job);
    const int64_t least = fit.need.ranks[0].weights;
    if (fit.need.process <= room.bytes) break;
    if (job.resident_blocks == 0) return refused(least, fit.need.process - least);
  }
  job.notes.push_back(fmt::format(
      "streams the transformer ({} of weights) to stay within {}: {} of {} blocks stay in memory, "
      "the others are read from the file in every step",
      amount(double(parts.whole())), amount(double(room.bytes)), job.resident_blocks,
      parts.blocks.size()));
  return fit;
}

models::Tiling vae_tiles(const ModelState& state, int64_t pixels) {
  require(pixels == 0 || (pixels >= 64 && pixels <= 16384), ErrorCode::usage,
          "--vae-tiling {}: expected auto, on, off, or a tile's side of 64 to 16384 pixels",
          pixels);
  return state.vae().tiling(pixels);
}

Need decode_need(const models::VaeSpec& vae, DType dtype, const nn::TokenLayout& layout,
                 const Tiles& tiles) {
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  scope.meter = std::make_shared<tensor::Meter>();
  const tensor::BindScope bind(scope);
  const load::MetaWeights weights;
  const auto& [frames, height, width] = layout.size;
  const tensor::Shape shape = vae.video ? tensor::Shape{1, layout.channels, frames, height, width}
                                        : tensor::Shape{1, layout.channels, height, width};
  {
    const auto decoder = vae.decoder(weights, dtype);
    nn::LocalSpatial spatial;
    const auto whole = [&](const Tensor& x) { return decoder->decode(x, spatial); };
    const Tensor latent = Tensor::empty(shape, DType::f32, Device::meta);
    (void)(tiles ? models::decode_tiles(latent, vae.factor, *tiles, whole) : whole(latent));
  }
  return {scope.memory->peak(tensor::MemoryClass::weights),
          scope.memory->peak(tensor::MemoryClass::activations), scope.memory->peak(),
          weights.parameters() * size_of(dtype), scope.meter->entries()};
}

void plan_memory(ModelState& state, const GenerateRequest& request, Job& job) {
  const Room room = room_of(state);
  const double latents = double(job.layout.tokens()) * double(job.layout.token_channels()) *
                         job.samples() * 4 * sizeof(float);
  require(latents < double(room.bytes), ErrorCode::memory,
          "this run ({} of {} x {} latent pixels) would need {} for its latents alone, {}: use a "
          "smaller size or --count",
          job.samples(), job.layout.size[2], job.layout.size[1], amount(latents), room.allows);
  check_tokens(job.layout, int64_t{job.samples()} * (job.guidance.branches() ? 2 : 1));
  const Fit fit = fit_transformer(state, job);
  if (!fit.problem.empty()) fail(ErrorCode::memory, "{}", fit.problem);
  state.transformers.keep_only(job.resident_blocks);
  if (request.decode) plan_tiles(state, request, room, job);
}

}  // namespace tessera::pipeline
