#include "diffusion/sharded_text.h"

#include <algorithm>
#include <mutex>

#include "base/fail.h"
#include "base/stop.h"
#include "cluster/agree.h"
#include "cluster/gather_reports.h"
#include "diffusion/text_encoders.h"
#include "load/held_weights.h"
#include "load/weights_file.h"
#include "ops/elementwise.h"
#include "parallel/tensor/block_gather.h"
#include "runtime/counted_bytes.h"
#include "runtime/launch.h"
#include "runtime/sharded_blocks.h"

namespace tessera::diffusion {
namespace {

using models::TextBatch;
using models::TextStates;
using tensor::Tensor;

constexpr comm::Tag kText{"text", -1};
const char* const kWeights = "text_weights";

// The layouts of a text encoder's layers up to the requested hidden states, as runs of bytes.
std::vector<runtime::BlockLayout> layouts_of(const runtime::ModelState& state,
                                             const std::string& part,
                                             const std::vector<int>& hidden,
                                             const runtime::Adapters* adapters = nullptr) {
  std::shared_ptr<const nn::Weights> meta = meta_weights_of(state, part);
  if (adapters) meta = adapters->merged(part, meta, state.device());
  const auto encoder = encoder_over(state, part, meta);
  std::vector<runtime::BlockLayout> layouts;
  for (int64_t i = 0; i < encoder->layers_for(hidden); ++i)
    layouts.emplace_back(meta, [&](const nn::Weights& noted) { encoder->ask(i, noted); });
  return layouts;
}

// A key of a part's weight files in their current state.
std::string files_of(const runtime::ModelState& state, const std::string& part) {
  const load::TensorSet tensors = load::open_weights(state.folder.component(part));
  std::string identities;
  for (const load::TensorFile& file : tensors.files()) identities += file.identity() + '\n';
  return identities;
}

/// A text encoder's bytes that stay between requests; immutable.
struct KeptRuns {
  std::string files;
  std::vector<std::vector<Tensor>> layers;  ///< by rank of the group, those of this process
  std::vector<std::shared_ptr<const void>> rest = {};  ///< everything outside the layers
};

// Bytes of runs; undefined runs count 0.
int64_t bytes_of(const std::vector<Tensor>& runs) {
  int64_t bytes = 0;
  for (const Tensor& x : runs) bytes += x.defined() ? x.bytes() : 0;
  return bytes;
}

/// The layers of a text encoder on a rank of the group; each layer is used once, in order.
class ShardedLayers {
 public:
  /// `kept_layers`: runs kept from earlier requests, or empty.
  ShardedLayers(std::vector<runtime::BlockLayout> layouts,
                std::shared_ptr<const nn::Weights> weights, tensor::Device device,
                comm::Communicator& ranks, std::vector<Tensor> kept_layers, bool keep,
                std::shared_ptr<const nn::LowRanks> pairs)
      : layouts_(std::move(layouts)),
        weights_(std::move(weights)),
        device_(device),
        shard_{ranks.rank(), ranks.size()},
        keep_(keep),
        pairs_(std::move(pairs)),
        counted_(tensor::current_scope().memory, tensor::MemoryClass::weights,
                 bytes_of(kept_layers)),
        gather_(ranks, kWeights) {
    blocks_.blocks = {0, std::ssize(layouts_)};
    blocks_.mine = std::move(kept_layers);
    blocks_.mine.resize(layouts_.size());
    for (const runtime::BlockLayout& layout : layouts_) blocks_.whole.push_back(layout.bytes());
  }
  int64_t count() const { return std::ssize(layouts_); }
  std::shared_ptr<const nn::Weights> at(int64_t layer) {
    base::check_stop();
    pack(layer);
    if (layer + 1 < count()) pack(layer + 1);  // the next layer is sent before this layer runs
    const auto i = static_cast<size_t>(layer);
    const Tensor buffer = gather_.bytes(static_cast<int>(layer), blocks_);
    if (!keep_) blocks_.mine[i] = {};
    return nn::with_pairs(layouts_[i].over(buffer), pairs_);
  }
  const std::vector<Tensor>& own_runs() const { return blocks_.mine; }

 private:
  void pack(int64_t layer) {
    const auto i = static_cast<size_t>(layer);
    if (!blocks_.mine[i].defined())
      blocks_.mine[i] = layouts_[i].packed(*weights_, layouts_[i].run_of(shard_), device_);
  }

  const std::vector<runtime::BlockLayout> layouts_;
  const std::shared_ptr<const nn::Weights> weights_;
  const tensor::Device device_;
  const nn::Shard shard_;
  const bool keep_;
  const std::shared_ptr<const nn::LowRanks> pairs_;  // null: none
  const runtime::CountedBytes counted_;              // counts bytes from before the run as well
  nn::ShardedBlocks blocks_;
  parallel::BlockGather gather_;
};

// The texts of a rank of the group. The last rank takes the first texts, because larger parts are
// the later ones: so rank 0 has a text if there is any.
nn::Range texts_of(const comm::Communicator& ranks, int rank, int64_t texts) {
  return nn::split({0, texts}, ranks.size(), ranks.size() - 1 - rank);
}

TextBatch slice_of(const TextBatch& batch, nn::Range texts) {
  const auto ids = batch.ids.begin(), from = ids + texts.begin * batch.length;
  const auto visible = batch.visible.begin();
  return {{from, ids + texts.end * batch.length},
          {visible + texts.begin, visible + texts.end},
          batch.length,
          batch.hidden};
}

// Joins the states of all ranks on the first rank.
TextStates joined(comm::Communicator& ranks, TextStates states, int64_t texts) {
  for (Tensor* x : states.all()) {
    if (!x->defined()) continue;
    if (ranks.rank() > 0) {
      ranks.send(0, *x, kText);
      continue;
    }
    std::vector<Tensor> parts;
    for (int rank = ranks.size() - 1; rank > 0; --rank) {
      const int64_t count = texts_of(ranks, rank, texts).size();
      if (count == 0) continue;
      const Tensor& part = parts.emplace_back(ranks.receive(rank, kText).wait());
      require(part.dtype() == x->dtype() && part.shape() == x->shape().with(0, count),
              ErrorCode::rank, "rank {} encodes {} texts to {} {}, rank 0 {} to {} {}",
              ranks.in_world(rank), count, tensor::name_of(part.dtype()), part.shape().str(),
              x->size(0), tensor::name_of(x->dtype()), x->shape().str());
    }
    parts.push_back(*x);
    if (parts.size() > 1) *x = ops::concat_rows(parts);
  }
  return states;
}

/// Ranks of this process while they encode.
struct Encoding {
  const runtime::ModelState& state;
  const std::string& part;
  const TextBatch& batch;
  const KeptRuns& old_runs;
  KeptRuns* keep;                     ///< null: nothing
  const runtime::Adapters* adapters;  ///< null: none change the part

  TextStates share(comm::Communicator& ranks) const;
};

TextStates Encoding::share(comm::Communicator& ranks) const {
  const auto rank = static_cast<size_t>(ranks.rank());
  auto weights = state.weights_of(part);
  if (adapters) weights = adapters->merged(part, weights, state.device());
  const auto pairs = adapters ? adapters->pairs(part, state.device()) : nullptr;
  ShardedLayers layers(
      layouts_of(state, part, batch.hidden, adapters), weights, state.device(), ranks,
      rank < old_runs.layers.size() ? old_runs.layers[rank] : std::vector<Tensor>(),
      keep != nullptr, pairs);
  const nn::Range own_texts = texts_of(ranks, ranks.rank(), batch.texts());
  TextStates states;
  if (own_texts.size() > 0) {
    const auto held_weights = keep ? std::make_shared<const load::HeldWeights>(weights) : nullptr;
    const auto encoder =
        encoder_over(state, part, nn::with_pairs(held_weights ? held_weights : weights, pairs));
    states = numbers_of(*encoder, slice_of(batch, own_texts), part,
                        [&](int64_t layer) { return layers.at(layer); });
    if (keep) keep->rest[rank] = held_weights->values();
  } else {
    const tensor::PageReuse reuse;
    for (int64_t i = 0; i < layers.count(); ++i) layers.at(i);
  }
  if (keep) keep->layers[rank] = layers.own_runs();
  return joined(ranks, std::move(states), batch.texts());
}

// The kept runs of a part if its files are unchanged; otherwise empty.
KeptRuns kept_runs(const runtime::ModelState& state, const std::string& part,
                   const std::string& files) {
  const auto entry = std::static_pointer_cast<const KeptRuns>(state.loaded.kept.find(part));
  return entry && entry->files == files ? *entry : KeptRuns{files, {}};
}

}  // namespace

TextStates encode_sharded(const runtime::ModelState& state, const std::string& part,
                          const TextBatch& batch, int64_t keep, const runtime::RunMeters& meters,
                          const std::stop_token& stop, Report& report,
                          const runtime::Adapters* adapters) {
  const std::vector<int> members = encoding_ranks(state.options.plan);
  const cluster::Ranks ranks = state.ranks();
  const bool meta = state.device() == tensor::Device::meta;
  KeptRuns old_runs, new_runs;
  between_encoders(state, [&] {
    if (!meta && !adapters && encodes_text(state))
      old_runs = kept_runs(state, part, files_of(state, part));
  });
  new_runs.files = old_runs.files;
  new_runs.layers.resize(members.size());
  new_runs.rest.resize(members.size());
  const Encoding encoding{state, part, batch, old_runs, keep > 0 ? &new_runs : nullptr, adapters};
  report.per_rank.resize(std::max<size_t>(state.workers.ranks.size(), 1));
  TextStates states;
  std::mutex mutex;
  runtime::launch_ranks(state, meters, stop, [&](comm::Communicator* world) {
    const int rank = world->rank();
    const bool takes_part = std::find(members.begin(), members.end(), rank) != members.end();
    const auto group = world->group(takes_part ? members : std::vector{rank});  // all of the world
    if (!takes_part) return;
    const base::BindStop halt(ranks.speaks(rank) ? stop : std::stop_token());
    TextStates rank_states = encoding.share(*group);
    const std::lock_guard lock(mutex);
    if (rank == 0) states = std::move(rank_states);
    report.per_rank[static_cast<size_t>(ranks.place(rank))] =
        runtime::work_of(state.workers.scope(rank, &meters), 0);
    if (!ranks.all_here()) return;  // processes report their traffic after the run
    Report traffic_report;
    for (const auto& [key, entry] : world->ledger().entries())
      traffic_report.traffic[key] = {entry.messages, entry.bytes, entry.wait_seconds,
                                     entry.flight_seconds, entry.kind};
    cluster::add_report(traffic_report, report);
  });
  between_encoders(state, [&] {
    if (keep > 0 && encodes_text(state))
      state.loaded.kept.keep(part, std::make_shared<const KeptRuns>(std::move(new_runs)), keep);
  });
  return states;
}

int64_t sharded_bytes(const runtime::ModelState& state, const std::string& part,
                      const std::vector<int>& hidden) {
  const std::vector<int> members = encoding_ranks(state.options.plan);
  int64_t bytes = 0;
  for (const runtime::BlockLayout& layout : layouts_of(state, part, hidden))
    for (size_t i = 0; i < members.size(); ++i)
      if (state.ranks().here(members[i]))
        bytes += layout.run_of({static_cast<int>(i), static_cast<int>(members.size())}).size();
  return bytes;
}

}  // namespace tessera::diffusion
