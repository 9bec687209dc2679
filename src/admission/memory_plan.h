#pragma once

#include <functional>
#include <optional>
#include <string>

#include "admission/rehearse.h"
#include "diffusion/job.h"

namespace tessera::admission {

/// The tiles of the VAE of a model: of `pixels` a side, or 0: as its configuration says. Throws
/// Error(usage) for sizes that no tile has.
models::Tiling vae_tiles(const runtime::ModelState& state, int64_t pixels);

/// That an image is not cut in both ways; {}: how many ranks have bands of it.
inline constexpr const char* kTilesOrBands =
    "--vae-tiling cuts images into tiles, and vae={} into bands of lines: leave out one of the two";

/// "16.2 GB", "3.4 MB", "52.0 KB", "17 bytes".
std::string amount(double bytes);
/// With as many digits as tell it from another amount.
std::string amount(double bytes, double other);

/// What a run may take: bytes, and how messages call it: of whom, all that there is, what takes
/// part of that.
struct Room {
  int64_t bytes = 0;
  std::string giver{};
  double whole = 0;
  std::string beside{};
};
/// Of this process: RunOptions::memory_budget, else nearly all that the machine or the GPU has,
/// shared with the ranks beside it; less what the run holds already.
Room room_of(const runtime::ModelState& state, int64_t held = 0);
/// "--memory-budget 5.2MB", which allows so many bytes.
std::string budget_of(int64_t bytes);
/// Why something does not fit: what it is, what it needs, what there is, and what would help.
std::string too_large(const std::string& what, int64_t bytes, int64_t weights, const Room& room,
                      const std::string& remedy);

/// Takes so many bytes of the process for a run that fits there alone, `weights` of them the
/// model's; idle models may have to let go of what they keep. Throws Error(memory), naming them,
/// where other runs hold too much.
void take_room(const runtime::ModelState& state, const std::string& what, int64_t bytes,
               int64_t weights, runtime::AtWork& at_work);

/// What each of a plan's ranks would need, with `beside` bytes of its request, if that fits and
/// they were processes; "": it does not, or they are.
std::string as_processes(const RunOptions& options, const Rehearsal& need, int64_t beside,
                         const Room& room);

/// The largest tiles in which an image or video of a job can be decoded (none: whole; else of the
/// published size, or halves of 1024 pixels), or those that take least.
struct TileChoice {
  std::optional<models::Tiling> tiles;
  diffusion::Need need;
};
TileChoice choose_tiles(const runtime::ModelState& state, const diffusion::Job& job,
                        const Room& room);
/// The same of a preview in the middle of a run: in the tiles of the result if they do.
TileChoice choose_preview(const runtime::ModelState& state, const diffusion::Job& job,
                          const Room& room);

/// The tiles of a preview in the middle of a run, beside what that holds; what is kept of other
/// parts goes first. Throws Error(memory).
std::optional<models::Tiling> preview_tiles(const runtime::ModelState& state,
                                            const diffusion::Job& job);

/// What the parts of a run need, one after the other, and why one does not fit; "": they do.
struct Fit {
  Rehearsal denoise;
  diffusion::Need decode;  ///< of one image or video; nothing where none is made
  int64_t text = 0;        ///< bytes of text encoders that this process runs, at most
  int64_t process = 0;     ///< bytes that this process takes at most
  /// By plan_memory(): those with what is kept of other parts meanwhile, and of them those that
  /// stay between requests, which others of the model at the same time share.
  int64_t taken = 0, stays = 0;
  std::string problem;
};
/// Makes a job fit into the memory of the machine or RunOptions::memory_budget: chooses how many
/// blocks of the transformer stay in memory (on one rank), beside previews if they are asked for
/// and can be, and the tiles in which latents are decoded, and says so in job.notes. Reads no
/// weight. Throws Error(usage) for tiles that cannot be. `beside`: bytes that other requests of a
/// sequence hold.
Fit fit_memory(const runtime::ModelState& state, const GenerateRequest& request,
               diffusion::Job& job, int64_t beside = 0);

/// The same of a request: throws Error(memory) when nothing helps. Of one that is like one that was
/// seen to fit whole it gives `process`, `text` and weights alone, unless a plan decodes apart.
Fit require_memory(const runtime::ModelState& state, const GenerateRequest& request,
                   diffusion::Job& job, int64_t beside = 0);
/// The same for a run: lets go of what is beside it.
Fit plan_memory(runtime::ModelState& state, const GenerateRequest& request, diffusion::Job& job,
                int64_t beside = 0);

/// Throws Error(memory) where the images of one request of a sequence cannot be decoded while
/// another one is denoised, beside what those before them have made; `inputs`: bytes of all. What
/// they take together (0: there is one).
int64_t require_overlap(const runtime::ModelState& state, const std::vector<Fit>& fits,
                        int64_t inputs);

/// The rows of each expert of a layer, as tensor::Assumptions has them, if all tokens choose the
/// experts of one rank, one that has most of them; none: no ranks share experts, or the caller's
/// scope assumes who gets how many. `rule`: of a language model, by which a token may go to more
/// experts than its router says.
std::vector<double> uneven_load(const Plan& plan, const nn::Geometry& geometry,
                                const nn::SelectionRule* rule);
/// Bytes of a process, by a rehearsal, under that load; 0: there is none.
int64_t most_uneven(const Plan& plan, const nn::Geometry& geometry, const nn::SelectionRule* rule,
                    const std::function<Rehearsal()>& rehearse);
/// That experts of several ranks are foreseen to get alike many tokens, and what it is at most; "":
/// most_uneven() found 0.
std::string assumed_routing(int64_t most_uneven);
/// What a run took beyond its budget, with the reason; "": nothing.
std::string beyond_budget(const RunOptions& options, const MemoryPeaks& process,
                          const std::vector<Report::Rank>& ranks);

}  // namespace tessera::admission
