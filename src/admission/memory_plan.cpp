#include "admission/memory_plan.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "base/machine_memory.h"
#include "diffusion/decode.h"
#include "diffusion/sizes.h"
#include "diffusion/text_encoders.h"
#include "parallel/experts/exchange.h"
#include "parallel/setup.h"
#include "runtime/streamed.h"

namespace tessera::admission {
namespace {

using tensor::Device;
using Tiles = std::optional<models::Tiling>;

const char* const kSmaller = "use a smaller size or `count`";

// Alternatives for the denoising: a plan with more ranks and fewer experts on each, or
// processes.
std::string ranks_that_fit(const runtime::ModelState& state, const diffusion::Job& job,
                           const DryRun& need, const MemoryLimit& room) {
  const RunOptions& options = state.options;
  const Plan& plan = options.plan;
  const auto sites = state.geometry().experts;
  const int most = sites.empty() || plan.ranks() != plan.expert ? 0 : sites.front().experts;
  for (int ranks = 2 * plan.expert; !state.ranks().all_here() && ranks <= most; ranks *= 2) {
    RunOptions wider = options;
    wider.plan.expert = wider.plan.data = ranks;
    wider.plan.placement = ExpertPlacement::blocks;
    if (!parallel::problems(wider.plan, state.geometry(), job.workload()).empty()) continue;
    const int64_t bytes = dry_run(state, wider, job).process;
    if (bytes <= room.bytes)
      return fmt::format("`plan` {} needs {} a rank", to_string(wider.plan), amount(double(bytes)));
  }
  const std::string remedy = as_processes(options, need, input_bytes(job), room);
  return remedy.empty() && plan.ranks() > 1
             ? "ranks of a plan do not stream weights, one rank alone does"
             : remedy;
}

// With the budget `least`, enough for all parts of the run.
std::string remedy_of(const runtime::ModelState& state, std::string ranks, int64_t least) {
  if (!ranks.empty()) ranks += "; else ";
  if (state.options.memory_budget == 0) return ranks + kSmaller;
  const char* const streamed = state.quantises_products() || state.quantises_experts()
                                   ? "; or quantise the folder first: only then blocks are streamed"
                                   : "";
  return fmt::format("{}it fits into {}; else {}{}", ranks, budget_of(least), kSmaller, streamed);
}

/// A part above the limit.
struct MemoryOverrun {
  std::string subject;
  int64_t bytes = 0, weights = 0;
};

// Keeps as many blocks as fit, beside a preview of `preview` bytes (0: none). False: none fit.
bool stream(const runtime::ModelState& state, const DryRun& whole, int64_t room, int64_t preview,
            diffusion::Job& job, DryRun& need) {
  const auto takes = [&] {
    return std::max(need.process, preview > 0 ? need.between + preview : 0);
  };
  const runtime::PartWeights parts = runtime::part_weights(
      *state.spec, state.dtype(), state.expert_dtype(), *state.meta_weights_of("transformer"));
  need = whole;
  // Even without any fitting block, its peak and the activations' peak may not coincide.
  const int64_t rest = takes() - need.weights;
  job.admitted.resident_blocks = std::max<int64_t>(runtime::resident_blocks(parts, room - rest), 0);
  for (;; --job.admitted.resident_blocks) {
    need = dry_run(state, job);
    if (takes() <= room) return true;
    if (job.admitted.resident_blocks == 0) return false;
  }
}

// For the denoising. A single rank streams blocks above the limit.
std::optional<MemoryOverrun> fit_transformer(const runtime::ModelState& state,
                                             const MemoryLimit& room, bool previews,
                                             diffusion::Job& job, DryRun& need) {
  job.admitted.resident_blocks = -1;
  need = dry_run(state, job);
  const auto overrun = [&] { return MemoryOverrun{"this run", need.process, need.weights}; };
  if (need.process <= room.bytes) return {};
  if (state.options.plan.ranks() > 1 || state.quantises_experts() || state.quantises_products())
    return overrun();
  const DryRun whole = need;
  const int64_t least = previews ? choose_tiles(state, job, {}).need.peak : 0;
  if (!(least > 0 && stream(state, whole, room.bytes, least, job, need)) &&
      !stream(state, whole, room.bytes, 0, job, need))
    return overrun();
  job.planned.notes.push_back(fmt::format(
      "streams the transformer ({} of weights) to stay within {}: {} of {} blocks stay in memory, "
      "the others are read from the file in every step",
      amount(double(whole.weights)), amount(double(room.bytes)), job.admitted.resident_blocks,
      state.spec->blocks));
  return {};
}

// Bytes beside the decoder during decoding, without all latents and a kept transformer.
int64_t held_in_decoding(const diffusion::Job& job, const DryRun& denoise) {
  return input_bytes(job) + denoise.traced;
}

void note_tiles(const runtime::ModelState& state, bool requested, const MemoryLimit& room,
                diffusion::Job& job) {
  const int64_t factor = state.vae_factor();
  const bool one_tile = job.planned.layout.size[1] <= job.admitted.tiles->height.size &&
                        job.planned.layout.size[2] <= job.admitted.tiles->width.size;
  job.planned.notes.push_back(fmt::format(
      "decodes {} of {} x {} pixels{}",
      one_tile ? "in one tile, which would hold an image" : "in tiles with blended seams,",
      job.admitted.tiles->width.size * factor, job.admitted.tiles->height.size * factor,
      requested ? "" : ": whole latents would not fit into " + amount(double(room.bytes))));
}

// An image is encoded before the transformer is read; like a result, in tiles if it must be.
std::optional<MemoryOverrun> fit_image(const runtime::ModelState& state,
                                       const GenerateRequest& request, const MemoryLimit& room,
                                       diffusion::Job& job, diffusion::SourceImage& image,
                                       MemoryFit& fit) {
  Tiles& tiles = image.tiles;
  if (request.vae_tiling == VaeTiling::on) tiles = vae_tiles(state, request.vae_tile);
  diffusion::MemoryNeed need = dry_run_encode(state, job, image, tiles);
  if (request.vae_tiling == VaeTiling::automatic)
    for (const int64_t pixels : {0, 1024, 512, 256, 128}) {
      if (need.peak <= room.bytes) break;
      const Tiles smaller = vae_tiles(state, pixels);
      const diffusion::MemoryNeed other = dry_run_encode(state, job, image, smaller);
      if (other.peak < need.peak) tiles = smaller, need = other;
    }
  if (tiles && need.peak <= room.bytes) {
    const std::string note = fmt::format("encodes the image in tiles of {} x {} pixels",
                                         tiles->width.size * state.vae_factor(),
                                         tiles->height.size * state.vae_factor());
    if (std::ranges::count(job.planned.notes, note) == 0) job.planned.notes.push_back(note);
  }
  fit.text = std::max(fit.text, need.peak);
  if (need.peak <= room.bytes) return {};
  return MemoryOverrun{"the encoding of the image", need.peak, need.weights};
}

std::optional<MemoryOverrun> fit_tiles(const runtime::ModelState& state,
                                       const GenerateRequest& request, int64_t held_bytes,
                                       diffusion::Job& job, MemoryFit& fit) {
  const MemoryLimit room = room_of(state, held_bytes);
  diffusion::MemoryNeed& need = fit.decode;
  if (const int shares = state.options.plan.vae; shares > 1) {
    require(request.vae_tiling != VaeTiling::on, ErrorCode::plan, kTilesOrBands, shares);
    need = dry_run_bands(state, job, fit.denoise.ranks);
    if (need.peak <= room.bytes) return {};
    return MemoryOverrun{
        fmt::format("this run's decoding by vae={}, which is not in tiles,", shares),
        held_bytes + need.peak, need.weights};
  }
  const bool automatic = request.vae_tiling == VaeTiling::automatic;
  if (automatic) {
    const TileChoice choice = choose_tiles(state, job, room);
    job.admitted.tiles = choice.tiles;
    need = choice.need;
  } else {
    if (request.vae_tiling == VaeTiling::on)
      job.admitted.tiles = vae_tiles(state, request.vae_tile);
    need = dry_run_decode(state, job, job.admitted.tiles);
  }
  if (need.peak > room.bytes)
    return MemoryOverrun{automatic ? "this run's decoding, in tiles,"
                                   : "this run's decoding, unless `vae_tiling` is auto,",
                         held_bytes + need.peak, need.weights};
  if (job.admitted.tiles) note_tiles(state, !automatic, room, job);
  return {};
}

// For separate decoding ranks; a single decoder may use the largest fitting tiles.
std::optional<MemoryOverrun> fit_halves(const runtime::ModelState& state,
                                        const GenerateRequest& request, const MemoryLimit& room,
                                        diffusion::Job& job, MemoryFit& fit) {
  const int shares = state.options.plan.vae;
  const bool requested = request.vae_tiling == VaeTiling::on;
  require(shares == 1 || !requested, ErrorCode::plan, kTilesOrBands, shares);
  if (requested) job.admitted.tiles = vae_tiles(state, request.vae_tile);
  std::optional<MemoryOverrun> misfit = fit_transformer(state, room, false, job, fit.denoise);
  if (shares == 1 && request.vae_tiling == VaeTiling::automatic)
    for (const int64_t pixels : {0, 1024, 512, 256, 128}) {
      if (!misfit) break;
      job.admitted.tiles = vae_tiles(state, pixels);
      misfit = fit_transformer(state, room, false, job, fit.denoise);
    }
  if (job.admitted.tiles && !misfit) note_tiles(state, requested, room, job);
  fit.decode.weights = fit.denoise.decoders;
  return misfit;
}

std::string written(double bytes, int digits) {
  if (bytes >= 1e9) return fmt::format("{:.{}f} GB", bytes / 1e9, digits);
  if (bytes >= 1e5) return fmt::format("{:.{}f} MB", bytes / 1e6, digits);
  return bytes >= 1e3 ? fmt::format("{:.{}f} KB", bytes / 1e3, digits)
                      : fmt::format("{:.0f} bytes", bytes);
}

// "`memory_budget` allows 5.2 MB", for a need of so many bytes.
std::string allowed(const MemoryLimit& room, double need) {
  return fmt::format("{} {}{}", room.giver, amount(room.whole, need), room.beside);
}

void check_latents(const diffusion::Job& job, const MemoryLimit& room) {
  const double latents = double(job.planned.layout.tokens()) *
                         double(job.planned.layout.token_channels()) * job.samples() * 4 *
                         sizeof(float);
  require(latents < double(room.bytes), ErrorCode::memory,
          "this run ({} of {} x {} latent pixels) would need {} for its latents alone, {}: {}",
          job.samples(), job.planned.layout.size[2], job.planned.layout.size[1], amount(latents),
          allowed(room, latents), kSmaller);
  diffusion::check_tokens(job.planned.layout,
                          int64_t{job.samples()} * (job.planned.guidance.branches() ? 2 : 1));
}

// The part of a request that determines its prediction: no prompts and no
// seeds.
std::string size_of(const GenerateRequest& request, const diffusion::Job& job) {
  const nn::TokenLayout& layout = job.planned.layout;
  std::string size = fmt::format(
      "{} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", layout.size[0], layout.size[1],
      layout.size[2], job.samples(), job.planned.sampler_name, job.planned.sampler->steps(),
      job.planned.guidance.branches(), job.planned.guidance.measures_samples(), job.prefix(),
      job.planned.added_frames, job.planned.crop_height, job.planned.crop_width,
      job.planned.crop_covers, job.planned.traced, request.decode);
  size += fmt::format(" {} {} {}", static_cast<int>(request.vae_tiling), request.vae_tile,
                      job.planned.vae_chunk);
  for (const auto* tensors : {&job.asked.conditioning.tensors, &job.asked.given})
    for (const auto& [name, x] : *tensors) {
      size += fmt::format(" {} {}", name, x.shape().str());
      if (name.find("mask") == std::string::npos) continue;
      const tensor::Tensor lengths = x.to(Device::cpu).contiguous();
      size.append(static_cast<const char*>(lengths.raw()), static_cast<size_t>(lengths.bytes()));
    }
  if (job.asked.source)
    size += fmt::format(" image {} {}", job.asked.source->pixels.shape().str(),
                        job.asked.source->mask.defined());
  for (const diffusion::SourceImage& image : job.asked.references)
    size += " reference " + image.pixels.shape().str();
  if (job.asked.adapters)
    size += fmt::format(" adapters {} {}", job.asked.adapters->bytes, job.asked.adapters->merge);
  for (const diffusion::Text& text : job.asked.texts)
    size += fmt::format(" {} {} {}", text.part.encoder, text.need.peak, text.need.weights);
  return size;
}

// Keeps weights of text encoders and the VAE that fit beside the whole run; earlier kept weights go
// first. Returns the bytes of all kept weights.
int64_t choose_kept(const runtime::ModelState& state, const MemoryFit& fit, int64_t room,
                    diffusion::Job& job) {
  if (!state.options.keep_parts) return 0;
  std::map<std::string, int64_t> parts;
  const auto fits = [&] { return fit.process + state.loaded.kept.bytes_with(parts) <= room; };
  for (const diffusion::Text& text : job.asked.texts)
    if (text.there && diffusion::encodes_text(state)) parts[text.part.encoder] = text.need.kept;
  job.admitted.keeps_text = fits();
  if (!job.admitted.keeps_text) parts.clear();
  parts["vae"] = diffusion::decodes_here(state) ? fit.decode.weights : 0;
  job.admitted.keeps_vae = fits() ? parts["vae"] : 0;
  if (!job.admitted.keeps_vae) parts.erase("vae");
  if (!fits()) {
    state.loaded.kept.release();
    return 0;
  }
  return state.loaded.kept.bytes_with(parts);
}

}  // namespace

std::string amount(double bytes) { return written(bytes, 1); }

std::string amount(double bytes, double other) {
  int digits = 1;
  while (bytes != other && digits < 9 && written(bytes, digits) == written(other, digits)) ++digits;
  return written(bytes, digits);
}

std::string budget_of(int64_t bytes) {
  return fmt::format("`memory_budget` {:.1f}MB", std::ceil(double(bytes) / 1e5) / 10);
}

std::string too_large(const std::string& subject, int64_t bytes, int64_t weights,
                      const MemoryLimit& room, const std::string& remedy) {
  const auto need = double(bytes);
  return fmt::format("{} would need about {} (weights {}, activations {}), {}: {}", subject,
                     amount(need, room.whole), amount(double(weights)),
                     amount(double(bytes - weights)), allowed(room, need), remedy);
}

MemoryLimit room_of(const runtime::ModelState& state, int64_t held_bytes) {
  const int64_t budget = state.options.memory_budget;
  const std::string beside =
      held_bytes > 0 ? fmt::format(", and the run holds {} of them", amount(double(held_bytes)))
                     : "";
  if (budget > 0) return {budget - held_bytes, "`memory_budget` allows", double(budget), beside};
  if (state.device() != Device::cpu) {  // held memory is not free
    const auto have = static_cast<double>(runtime::free_device_memory());
    return {static_cast<int64_t>(0.95 * have), "the GPU has", have};
  }
  const int sharing = state.ranks().on_this_machine();
  const double have = static_cast<double>(base::usable_memory()) / sharing;
  return {static_cast<int64_t>(0.95 * have) - held_bytes, "the machine has", have,
          (sharing > 1 ? " for each of its ranks" : "") + beside};
}

void take_room(const runtime::ModelState& state, const std::string& subject, int64_t bytes,
               int64_t weights, runtime::MemoryReservation& reservation) {
  const MemoryLimit room = room_of(state);
  std::vector<runtime::MemoryReservation::ModelMemory> others;
  if (reservation.take(bytes, weights, room.bytes, others)) return;
  double held_bytes = 0;
  std::string list;
  for (const runtime::MemoryReservation::ModelMemory& holder : others) {
    held_bytes += double(holder.bytes);
    list += fmt::format("{}'{}' {}", list.empty() ? "" : ", ", holder.name,
                        amount(double(holder.bytes)));
  }
  fail(ErrorCode::memory,
       "{} would need about {} (weights {}), {}, of which what else is at work holds {} ({}): wait "
       "for its end",
       subject, amount(double(bytes), room.whole), amount(double(weights)),
       allowed(room, double(bytes)), amount(held_bytes), list);
}

std::string as_processes(const RunOptions& options, const DryRun& need, int64_t beside,
                         const MemoryLimit& room) {
  int64_t most = 0;
  for (const Inspection::Rank& rank : need.ranks)
    most = std::max({most, rank.total + beside, rank.decode + beside, rank.text});
  if (!cluster::Ranks::of(options).all_here() || need.ranks.size() < 2 || most > room.bytes)
    return "";
  return fmt::format("as {} processes each rank needs {} at most", need.ranks.size(),
                     amount(double(most)));
}

TileChoice choose_preview(const runtime::ModelState& state, const diffusion::Job& job,
                          const MemoryLimit& room) {
  if (job.admitted.tiles) {
    TileChoice same{job.admitted.tiles, dry_run_decode(state, job, job.admitted.tiles)};
    if (same.need.peak <= room.bytes) return same;
  }
  return choose_tiles(state, job, room);
}

std::optional<models::Tiling> preview_tiles(const runtime::ModelState& state,
                                            const diffusion::Job& job) {
  MemoryLimit room = room_of(state, job.counted.meters.memory->current());
  TileChoice choice = choose_preview(state, job, room);
  if (choice.need.peak > room.bytes && state.loaded.kept.bytes() > 0) {
    state.loaded.kept.release();
    room = room_of(state, job.counted.meters.memory->current());
    choice = choose_preview(state, job, room);
  }
  const diffusion::MemoryNeed& need = choice.need;
  if (need.peak > room.bytes)
    fail(ErrorCode::memory, "{}",
         too_large("a preview", need.peak, need.weights, room, "use a smaller size"));
  return choice.tiles;
}

TileChoice choose_tiles(const runtime::ModelState& state, const diffusion::Job& job,
                        const MemoryLimit& room) {
  TileChoice least{{}, dry_run_decode(state, job, {})};
  for (const int64_t pixels : {0, 1024, 512, 256, 128}) {
    if (least.need.peak <= room.bytes) break;
    const Tiles tiles = vae_tiles(state, pixels);
    diffusion::MemoryNeed need = dry_run_decode(state, job, tiles);
    if (need.peak < least.need.peak) least = {tiles, std::move(need)};
  }
  return least;
}

models::Tiling vae_tiles(const runtime::ModelState& state, int64_t pixels) {
  require(pixels == 0 || (pixels >= 64 && pixels <= 16384), ErrorCode::usage,
          "`vae_tiling` {}: expected auto, on, off, or a tile's side of 64 to 16384 pixels",
          pixels);
  return state.vae().tiling(pixels);
}

MemoryFit fit_memory(const runtime::ModelState& state, const GenerateRequest& request,
                     diffusion::Job& job, int64_t beside) {
  const MemoryLimit room = room_of(state, beside);
  const bool apart = state.options.plan.vae_apart;
  MemoryFit fit;
  std::vector<MemoryOverrun> misfits;
  const int64_t adapters =
      job.asked.adapters ? job.asked.adapters->bytes : 0;  // are there before the texts
  for (const diffusion::Text& text : job.asked.texts) {
    const int64_t peak = text.need.peak + adapters;
    if (diffusion::encodes_text(state)) fit.text = std::max(fit.text, peak);
    if (peak > room.bytes)
      misfits.push_back(
          {fmt::format("the {}{}", text.part.encoder, adapters > 0 ? " with the adapters" : ""),
           peak, text.need.weights + adapters});
  }
  std::vector<diffusion::SourceImage*> images;
  if (job.asked.source) images.push_back(&*job.asked.source);
  for (diffusion::SourceImage& image : job.asked.references)
    if (state.has_vae()) images.push_back(&image);
  for (diffusion::SourceImage* image : images)
    if (const auto misfit = fit_image(state, request, room, job, *image, fit))
      misfits.push_back(*misfit);
  const bool previews = request.previews && state.has_vae();
  const auto denoising = apart ? fit_halves(state, request, room, job, fit)
                               : fit_transformer(state, room, previews, job, fit.denoise);
  if (denoising) misfits.push_back(*denoising);
  for (const diffusion::Text& text : job.asked.texts)
    for (size_t r = 0; r < std::min(text.need.ranks.size(), fit.denoise.ranks.size()); ++r)
      fit.denoise.ranks[r].text = std::max(fit.denoise.ranks[r].text, text.need.ranks[r]);
  const int64_t held_bytes = held_in_decoding(job, fit.denoise);
  if (request.decode && state.has_vae() && !apart)
    if (const auto misfit = fit_tiles(state, request, held_bytes, job, fit))
      misfits.push_back(*misfit);
  fit.process = std::max(
      {fit.text, fit.denoise.process, fit.decode.peak > 0 ? held_bytes + fit.decode.peak : 0});
  const int64_t beside_all = held_bytes + fit.denoise.weights + fit.decode.peak;
  job.admitted.keeps_transformer = state.options.keep_parts && (apart || beside_all <= room.bytes);
  if (job.admitted.keeps_transformer && !apart) fit.process = std::max(fit.process, beside_all);
  if (previews && !denoising) {
    const MemoryLimit remaining = room_of(state, beside + fit.denoise.between);
    const int64_t preview = choose_preview(state, job, remaining).need.peak;
    if (preview <= remaining.bytes)
      fit.process = std::max(fit.process, fit.denoise.between + preview);
  }
  if (misfits.empty()) return fit;
  const MemoryOverrun& first = misfits.front();
  int64_t least = 0;
  for (const MemoryOverrun& overrun : misfits) least = std::max(least, overrun.bytes);
  // More ranks help neither an encoder nor a decoder.
  const std::string ranks = denoising && misfits.size() == 1
                                ? ranks_that_fit(state, job, fit.denoise, room)
                                : std::string();
  fit.problem =
      too_large(first.subject, first.bytes, first.weights, room, remedy_of(state, ranks, least));
  return fit;
}

MemoryFit require_memory(const runtime::ModelState& state, const GenerateRequest& request,
                         diffusion::Job& job, int64_t beside) {
  const MemoryLimit room = room_of(state, beside);
  check_latents(job, room);
  const bool usual = tensor::current_scope().assumptions.expert_load.empty() && !request.previews &&
                     !state.options.plan.vae_apart;
  const std::string size = size_of(request, job);
  if (const auto entry = usual ? state.admitted.fitting.find(size) : std::nullopt)
    if (entry->process <= room.bytes) {
      MemoryFit fit;
      fit.process = entry->process;
      fit.text = entry->text;
      fit.denoise.weights = entry->transformer;
      fit.decode.weights = entry->vae;
      job.admitted.keeps_transformer = entry->beside;
      return fit;
    }
  const size_t notes = job.planned.notes.size();
  MemoryFit fit = fit_memory(state, request, job, beside);
  if (!fit.problem.empty()) fail(ErrorCode::memory, "{}", fit.problem);
  const bool whole = job.planned.notes.size() == notes;  // nothing streamed, no tiles
  if (usual && whole)
    state.admitted.fitting.keep(size, {fit.process, fit.text, fit.denoise.weights,
                                       fit.decode.weights, job.admitted.keeps_transformer});
  return fit;
}

MemoryFit plan_memory(runtime::ModelState& state, const GenerateRequest& request,
                      diffusion::Job& job, int64_t beside) {
  MemoryFit fit = require_memory(state, request, job, beside);
  state.loaded.transformers.keep_only(job.admitted.resident_blocks);
  const int64_t room = room_of(state).bytes, cache_bytes = choose_kept(state, fit, room, job);
  fit.stays = cache_bytes + (job.admitted.keeps_transformer ? fit.denoise.weights : 0);
  if (fit.text > 0 && fit.text + fit.stays > room) {  // the transformer is read after the texts
    state.loaded.transformers.release();
    fit.stays = 0;
  }
  fit.total = std::max(fit.process + cache_bytes,
                       fit.text > 0 ? fit.text + std::max(fit.stays, cache_bytes) : 0);
  if (state.options.memory_budget == 0) return fit;
  const int64_t most = most_uneven(state.options.plan, state.geometry(), nullptr,
                                   [&] { return dry_run(state, job); });
  if (most > 0) job.planned.notes.push_back(assumed_routing(most));
  return fit;
}

int64_t require_overlap(const runtime::ModelState& state, const std::vector<MemoryFit>& fits,
                        int64_t inputs) {
  const MemoryLimit room = room_of(state);
  int64_t denoise = 0, decode = 0, weights = 0, result_bytes = 0;
  for (const MemoryFit& fit : fits) {
    denoise = std::max(denoise, result_bytes + fit.denoise.process - fit.denoise.decoding);
    result_bytes += fit.denoise.results + fit.denoise.traced;  // kept until all have ended
    decode = std::max(decode, fit.denoise.decoding);
    weights = std::max(weights, fit.denoise.weights);
  }
  const int64_t need = inputs + denoise + decode;
  if (fits.size() > 1 && need > room.bytes)
    fail(ErrorCode::memory, "{}",
         too_large(fmt::format("these {} requests, of which one is decoded while the next one is "
                               "denoised,",
                               fits.size()),
                   need, weights, room, "ask for one after the other"));
  return fits.size() > 1 ? need : 0;
}

std::vector<double> uneven_load(const Plan& plan, const nn::Geometry& geometry,
                                const nn::SelectionRule* rule) {
  std::vector<double> load;
  if (plan.expert == 1 || geometry.experts.empty() ||
      !tensor::current_scope().assumptions.expert_load.empty())
    return load;
  const nn::ExpertSite& site = geometry.experts.front();
  const std::vector<int> owners = parallel::expert_owners(plan, site.experts);
  std::vector<int> owned(static_cast<size_t>(plan.expert));
  for (const int owner : owners) ++owned[static_cast<size_t>(owner)];
  const auto fullest = std::max_element(owned.begin(), owned.end()) - owned.begin();
  // A token selects an expert once: the remaining assignments go to other ranks.
  const auto owned_experts = owned[static_cast<size_t>(fullest)];
  const double rest = std::max(parallel::most_slots(geometry, rule) - owned_experts, 0) /
                      std::max(double(site.experts - owned_experts), 1.0);
  for (const int owner : owners) load.push_back(owner == fullest ? 1 : rest);
  return load;
}

int64_t most_uneven(const Plan& plan, const nn::Geometry& geometry, const nn::SelectionRule* rule,
                    const std::function<DryRun()>& dry_run) {
  std::vector<double> load = uneven_load(plan, geometry, rule);
  if (load.empty()) return 0;
  tensor::Scope scope = tensor::current_scope();
  scope.assumptions.expert_load = std::move(load);
  const tensor::BindScope bind(scope);
  return dry_run().process;
}

std::string assumed_routing(int64_t most_uneven) {
  if (most_uneven == 0) return "";
  return fmt::format(
      "memory is predicted as if all experts got as many tokens each; a rank takes more where its "
      "experts get more: a process {} at most, if all tokens choose the experts of one rank",
      amount(double(most_uneven)));
}

std::string beyond_budget(const RunOptions& options, const MemoryPeaks& process,
                          const std::vector<Report::Rank>& ranks) {
  int64_t most = process.total;
  for (const Report::Rank& rank : ranks)
    if (!cluster::Ranks::of(options).all_here())
      most = std::max({most, rank.peak_bytes.total, rank.decode_peak_bytes.total});
  if (options.memory_budget == 0 || most <= options.memory_budget) return "";
  const auto took = double(most), budget = double(options.memory_budget);
  return fmt::format("took {}, where `memory_budget` allows {}{}", amount(took, budget),
                     amount(budget, took),
                     options.plan.expert > 1 ? ": some experts got more tokens than others" : "");
}

}  // namespace tessera::admission
