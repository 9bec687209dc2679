#pragma once

#include <functional>
#include <optional>
#include <string>

#include "admission/dry_run.h"
#include "diffusion/job.h"

namespace tessera::admission {

/// The tiles of a model's VAE: `pixels` a side, or 0: from its configuration. Throws Error(usage)
/// for invalid sizes.
models::Tiling vae_tiles(const runtime::ModelState& state, int64_t pixels);

/// Refuses tiles together with bands; {}: the number of ranks with bands.
inline constexpr const char* kTilesOrBands =
    "`vae_tiling` cuts images into tiles, and vae={} into bands of lines: leave out one of the two";

/// "16.2 GB", "3.4 MB", "52.0 KB", "17 bytes".
std::string amount(double bytes);
/// With as many digits as needed to differ from another amount.
std::string amount(double bytes, double other);

/// A run's memory limit: bytes, and its name in messages: owner, total, other
/// holders.
struct MemoryLimit {
  int64_t bytes = 0;
  std::string giver{};
  double whole = 0;
  std::string beside{};
};
/// The limit of this process: RunOptions::memory_budget, else nearly all memory of the machine or
/// the GPU, shared with its other ranks, minus the run's present memory.
MemoryLimit room_of(const runtime::ModelState& state, int64_t held_bytes = 0);
/// "`memory_budget` 5.2MB", for so many bytes.
std::string budget_of(int64_t bytes);
/// The reason against a part: the thing, its need, the limit, and a remedy.
std::string too_large(const std::string& subject, int64_t bytes, int64_t weights,
                      const MemoryLimit& room, const std::string& remedy);

/// Reserves bytes of the process for a run that fits alone, `weights` of them for the model; idle
/// models may release kept weights. Throws Error(memory), with the names of other runs, without
/// enough memory.
void take_room(const runtime::ModelState& state, const std::string& subject, int64_t bytes,
               int64_t weights, runtime::MemoryReservation& reservation);

/// The need of each of a plan's ranks as processes, with `beside` bytes of the request, if fitting;
/// "": not fitting, or already processes.
std::string as_processes(const RunOptions& options, const DryRun& need, int64_t beside,
                         const MemoryLimit& room);

/// The largest fitting tiles for an image or video of a job (none: whole; else the published size,
/// or halves of 1024 pixels), or the smallest.
struct TileChoice {
  std::optional<models::Tiling> tiles;
  diffusion::MemoryNeed need;
};
TileChoice choose_tiles(const runtime::ModelState& state, const diffusion::Job& job,
                        const MemoryLimit& room);
/// The same for a preview during a run: in the result's tiles if they fit.
TileChoice choose_preview(const runtime::ModelState& state, const diffusion::Job& job,
                          const MemoryLimit& room);

/// The tiles of a preview beside the run's memory; kept weights of other parts go first. Throws
/// Error(memory).
std::optional<models::Tiling> preview_tiles(const runtime::ModelState& state,
                                            const diffusion::Job& job);

/// The needs of a run's parts, in sequence, and the reason against a part; "": all fit.
struct MemoryFit {
  DryRun denoise;
  diffusion::MemoryNeed decode;  ///< for an image or video; empty without decoding
  int64_t text = 0;              ///< bytes of text encoders in this process, at most
  int64_t process = 0;           ///< bytes of this process at most
  /// After plan_memory(): bytes with kept weights of other parts, and the bytes kept between
  /// requests and shared with other requests of the model.
  int64_t total = 0, stays = 0;
  std::string problem;
};
/// Fits a job into the machine's memory or RunOptions::memory_budget: chooses the resident
/// blocks of the transformer (on a single rank), beside previews if requested and
/// possible, and the tiles for decoding, and notes both in job.planned.notes. Reads no weight.
/// Throws Error(usage) for invalid tiles. `beside`: bytes held by other requests of a
/// sequence.
MemoryFit fit_memory(const runtime::ModelState& state, const GenerateRequest& request,
                     diffusion::Job& job, int64_t beside = 0);

/// The same for a request: throws Error(memory) without a remedy. For a request like an earlier
/// fitting one, sets only `process`, `text` and weights, unless a plan decodes apart.
MemoryFit require_memory(const runtime::ModelState& state, const GenerateRequest& request,
                         diffusion::Job& job, int64_t beside = 0);
/// The same for a run: releases other memory first.
MemoryFit plan_memory(runtime::ModelState& state, const GenerateRequest& request,
                      diffusion::Job& job, int64_t beside = 0);

/// Throws Error(memory) if images of a request in a sequence cannot be decoded while another is
/// denoised, beside earlier results; `inputs`: bytes of all. Returns their total (0: a single
/// request).
int64_t require_overlap(const runtime::ModelState& state, const std::vector<MemoryFit>& fits,
                        int64_t inputs);

/// The rows of each expert of a layer, as in tensor::Assumptions, if all tokens choose the
/// experts of a single rank, with the most of them; none: no ranks share experts, or the caller's
/// scope has a load. `rule`: of a language model, with possibly more experts of a token than its
/// router.
std::vector<double> uneven_load(const Plan& plan, const nn::Geometry& geometry,
                                const nn::SelectionRule* rule);
/// Bytes of a process in a dry run under this load; 0: no such load.
int64_t most_uneven(const Plan& plan, const nn::Geometry& geometry, const nn::SelectionRule* rule,
                    const std::function<DryRun()>& dry_run);
/// A note about the assumption of equal load, with its worst case; "": most_uneven() returned
/// 0.
std::string assumed_routing(int64_t most_uneven);
/// Bytes beyond a run's budget, with the reason; "": none.
std::string beyond_budget(const RunOptions& options, const MemoryPeaks& process,
                          const std::vector<Report::Rank>& ranks);

}  // namespace tessera::admission
