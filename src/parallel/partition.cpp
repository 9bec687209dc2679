#include "parallel/partition.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/fail.h"
#include "nn/kv_attention.h"
#include "ops/elementwise.h"

namespace tessera::parallel {
namespace {

using nn::Range;
using nn::Segment;
using nn::Segments;
using tensor::Tensor;

// Axes whose ranks hold different tokens and may share experts; the last three split a sequence.
// Ranks of `shard` have different samples, too, but equal portions of the weights.
constexpr std::string_view kTokenAxes[] = {"data", "cfg", "ring", "ulysses", "distrifusion"};
constexpr std::string_view kShardAxes[] = {"ring", "ulysses", "distrifusion"};

// Ascending; neighbours are merged.
std::vector<Range> merged(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> out;
  for (const Range& r : ranges) {
    if (r.size() == 0) continue;
    if (!out.empty() && out.back().end == r.begin)
      out.back().end = r.end;
    else
      out.push_back(r);
  }
  return out;
}

// The tokens at `places` of a list of ranges.
std::vector<Range> at_places(const std::vector<Range>& ranges, Range places) {
  std::vector<Range> out;
  int64_t at = 0;
  for (const Range& r : ranges) {
    const Range overlap{std::max(places.begin, at), std::min(places.end, at + r.size())};
    if (overlap.size() > 0)
      out.push_back({r.begin + overlap.begin - at, r.begin + overlap.end - at});
    at += r.size();
  }
  return out;
}

Tensor concatenated(const std::vector<Tensor>& pieces) {
  return pieces.size() == 1 ? pieces.front() : ops::concat_rows(pieces);
}

// True for the first rank along axes with equal rows.
bool first_along(const comm::Mesh& mesh, int rank, std::initializer_list<std::string_view> axes) {
  return std::all_of(axes.begin(), axes.end(),
                     [&](std::string_view axis) { return mesh.coordinate(rank, axis) == 0; });
}

// Rows of a segment, in the request's sequence of this number.
struct Piece {
  Segment segment;
  Tensor rows;
};

// The consecutive rows of segments in `part`.
void take_pieces(const Segments& segments, const Tensor& part, std::vector<Piece>& pieces) {
  int64_t at = 0;
  for (const Segment& s : segments) {
    pieces.push_back({s, part.slice(0, at, at + s.ids.size())});
    at += s.ids.size();
  }
}

Tensor joined(std::vector<Piece> pieces) {
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::pair(a.segment.sequence, a.segment.ids.begin) <
           std::pair(b.segment.sequence, b.segment.ids.begin);
  });
  std::vector<Tensor> rows;
  for (const Piece& piece : pieces) rows.push_back(piece.rows);
  return concatenated(rows);
}

}  // namespace

comm::Mesh mesh_of(const Plan& plan) { return comm::Mesh(axes_of(plan)); }

std::vector<int> expert_group(const Plan& plan, int rank) {
  return mesh_of(plan).overlay(rank, kTokenAxes, plan.expert);
}

int expert_place(const Plan& plan, int rank) {
  const std::vector<int> group = expert_group(plan, rank);
  return static_cast<int>(std::find(group.begin(), group.end(), rank) - group.begin());
}

int portion_number(const Plan& plan, int rank) {
  const comm::Mesh mesh = mesh_of(plan);
  const int stage = mesh.coordinate(rank, "pipefusion"), slice = mesh.coordinate(rank, "tensor");
  const int portion = (stage * plan.expert + expert_place(plan, rank)) * plan.tensor + slice;
  return portion * plan.shard + mesh.coordinate(rank, "shard");
}

Partition::Partition(comm::Mesh mesh, const Workload& workload, int patches, PatchShape shape)
    : mesh_(std::move(mesh)), patches_(patches), shape_(shape), workload_(workload) {}

Partition::Partition(const Plan& plan, const Workload& workload)
    : Partition(mesh_of(plan), workload, plan.patch_count(), plan.cut) {}

Partition Partition::of_pass(const Plan& plan, nn::TokenView pass) {
  require(pass.lengths.size() == pass.body.size(), ErrorCode::usage,
          "a pass with {} lengths for {} segments; passes are those of token models",
          pass.lengths.size(), pass.body.size());
  Partition partition(plan, Workload{});
  partition.pass_ = std::move(pass);
  partition.of_pass_ = true;
  return partition;
}

std::vector<int> Partition::sequences(int rank) const {
  if (of_pass_) return pass_.sequences;
  const Range branches =
      nn::split({0, workload_.branches}, mesh_.size("cfg"), mesh_.coordinate(rank, "cfg"));
  const Range samples = this->samples(rank);
  std::vector<int> sequences;
  for (int64_t b = branches.begin; b < branches.end; ++b)
    for (int64_t p = samples.begin; p < samples.end; ++p)
      sequences.push_back(static_cast<int>(b * workload_.samples + p));
  return sequences;
}

Range Partition::samples(int rank) const {
  const Range group =
      nn::split({0, workload_.samples}, mesh_.size("data"), mesh_.coordinate(rank, "data"));
  // Earlier ranks have more, so rank 0, with the encoders and the decoder, always has some.
  const auto begin = [&](int64_t place) {
    return group.begin + (group.size() * place + mesh_.size("shard") - 1) / mesh_.size("shard");
  };
  const int place = mesh_.coordinate(rank, "shard");
  return {begin(place), begin(place + 1)};
}

std::vector<Range> Partition::shard(const std::vector<Range>& patch, int rank) const {
  Range places;
  for (const Range& r : patch) places.end += r.size();
  for (const std::string_view axis : kShardAxes)
    places = nn::split(places, mesh_.size(axis), mesh_.coordinate(rank, axis));
  return at_places(patch, places);
}

// A range of `count` neighbours in runs of `unit_tokens` tokens: patches cost the same with the
// first one's text, and none is empty if possible.
Range Partition::patch_of(int64_t count, int64_t unit_tokens, int patch) const {
  const int64_t tokens = count * unit_tokens + workload_.prefix;
  const bool enough = count >= patches_;
  const auto begin = [&](int64_t p) {
    if (p == 0 || p == patches_) return p == 0 ? 0 : count;
    const int64_t even = (tokens * p / patches_ - workload_.prefix) / unit_tokens;
    return std::clamp<int64_t>(even, enough ? p : 0, enough ? count - (patches_ - p) : count);
  };
  return {begin(patch), begin(patch + 1)};
}

std::vector<Range> Partition::ids(int rank, int patch) const {
  const auto& [frames, height, width] = workload_.grid;
  std::vector<Range> ranges;
  for (int p = std::max(patch, 0); p < (patch < 0 ? patches_ : patch + 1); ++p) {
    std::vector<Range> whole;
    const bool runs = shape_ == PatchShape::runs;
    const Range band =
        runs ? patch_of(workload_.tokens(), 1, p) : patch_of(height, frames * width, p);
    if (runs) whole = {band};
    for (int64_t f = 0; f < frames && !runs; ++f)
      whole.push_back({(f * height + band.begin) * width, (f * height + band.end) * width});
    if (!runs && p + 1 == patches_)  // extra tokens go with the last band
      whole.push_back({workload_.tokens() - workload_.extra, workload_.tokens()});
    const auto own_ranges = shard(whole, rank);
    ranges.insert(ranges.end(), own_ranges.begin(), own_ranges.end());
  }
  return merged(std::move(ranges));
}

Range Partition::run(int rank) const {
  return nn::split({0, nn::token_count(pass_.body)}, mesh_.size("data"),
                   mesh_.coordinate(rank, "data"));
}

nn::TokenView Partition::view(const std::vector<int>& ranks, int patch) const {
  if (of_pass_) {
    Range places;
    for (const int rank : ranks) {  // neighbours along `data`
      const Range range = run(rank);
      places = places.size() == 0
                   ? range
                   : Range{std::min(places.begin, range.begin), std::max(places.end, range.end)};
    }
    return take_places(pass_, places);
  }
  std::vector<Range> latent;
  for (const int rank : ranks)
    for (const Range& r : ids(rank, patch)) latent.push_back(r);
  latent = merged(std::move(latent));
  const auto text_of = [&](int number) {
    std::vector<Range> text;
    for (const int rank : ranks)
      for (const Range& r : shard({{-workload_.prefix_of(number), 0}}, rank)) text.push_back(r);
    return merged(std::move(text));
  };
  nn::TokenView view;
  view.patch = patch;
  const std::vector<int> numbers = sequences(ranks.front());
  view.sequences.resize(numbers.size());
  std::iota(view.sequences.begin(), view.sequences.end(), 0);
  for (const int sequence : view.sequences) {
    if (patch <= 0)
      for (const Range& r : text_of(numbers[static_cast<size_t>(sequence)]))
        view.prefix.push_back({sequence, r});
    for (const Range& r : latent) view.body.push_back({sequence, r});
  }
  return view;
}

nn::TokenView Partition::view(int rank, int patch) const { return view(std::vector{rank}, patch); }

nn::TokenView Partition::beside(const nn::TokenView& call, const std::vector<int>& ranks) const {
  const nn::TokenView peer_view = view(ranks, call.patch);
  const size_t first = call.sequences.empty() ? 0 : static_cast<size_t>(call.sequences.front());
  return call.sequences == peer_view.sequences
             ? peer_view
             : take_sequences(peer_view, first, first + call.sequences.size());
}

std::vector<nn::TokenView> Partition::shards(int rank, int count) const {
  Plan plan;
  plan.distrifusion = count;
  const std::vector<int> numbers = sequences(rank);
  Workload own_workload{.samples = static_cast<int>(numbers.size()),
                        .grid = workload_.grid,
                        .prefix = workload_.prefix};
  own_workload.extra = workload_.extra;
  for (const int number : numbers) own_workload.prefixes.push_back(workload_.prefix_of(number));
  const Partition partition(plan, own_workload);
  const Range own_shards =
      nn::split({0, count}, mesh_.size("distrifusion"), mesh_.coordinate(rank, "distrifusion"));
  std::vector<nn::TokenView> views;
  for (int64_t s = own_shards.begin; s < own_shards.end; ++s)
    views.push_back(partition.view(static_cast<int>(s)));
  return views;
}

std::vector<Range> Partition::whole_sequences(int rank) const {
  if (workload_.text) return nn::sequences_of_lengths(workload_.text->lengths);
  std::vector<Range> whole;
  for (const int number : sequences(rank))
    whole.push_back({-workload_.prefix_of(number), workload_.tokens()});
  return whole;
}

bool Partition::whole_samples() const {
  return patches_ == 1 && std::all_of(std::begin(kShardAxes), std::end(kShardAxes),
                                      [&](std::string_view axis) { return mesh_.size(axis) == 1; });
}

// A rank's latent, once for all branches; a sequence is a sample of the request.
Segments Partition::latent(int rank, int patch) const {
  Segments segments;
  const Range samples = this->samples(rank);
  const std::vector<Range> ranges = ids(rank, patch);
  for (int64_t p = samples.begin; p < samples.end; ++p)
    for (const Range& r : ranges) segments.push_back({static_cast<int>(p), r});
  return segments;
}

Tensor Partition::cut(const Tensor& whole, int rank) const {
  std::vector<Range> places;
  for (const Segment& s : latent(rank)) {
    const int64_t first = s.sequence * workload_.tokens();
    places.push_back({first + s.ids.begin, first + s.ids.end});
  }
  std::vector<Tensor> parts;
  for (const Range& r : merged(std::move(places))) parts.push_back(whole.slice(0, r.begin, r.end));
  return parts.empty() ? whole.slice(0, 0, 0) : concatenated(parts);
}

std::vector<Range> Partition::places(int rank, int patch) const {
  return places_of(latent(rank), latent(rank, patch));
}

Segments Partition::text(int rank) const {
  Segments segments = view(rank).prefix;
  const std::vector<int> numbers = sequences(rank);
  for (Segment& s : segments) s.sequence = numbers[static_cast<size_t>(s.sequence)];
  return segments;
}

Tensor Partition::join(const std::vector<Tensor>& parts, Rows rows, int stage) const {
  const int holder_stage = stage < 0 ? mesh_.size("pipefusion") - 1 : stage;
  std::vector<Piece> pieces;
  for (int r = 0; r < mesh_.size(); ++r) {
    const Tensor& part = parts.at(static_cast<size_t>(r));
    if (mesh_.coordinate(r, "pipefusion") != holder_stage || !first_along(mesh_, r, {"tensor"}) ||
        part.size(0) == 0)
      continue;
    if (rows == Rows::latent && first_along(mesh_, r, {"cfg"}))
      take_pieces(latent(r), part, pieces);
    if (rows == Rows::text) take_pieces(text(r), part, pieces);
  }
  return pieces.empty() ? parts.front().slice(0, 0, 0) : joined(std::move(pieces));
}

nn::TokenView take_sequences(const nn::TokenView& view, size_t begin, size_t end) {
  nn::TokenView part;
  part.patch = view.patch;
  part.sequences.assign(view.sequences.begin() + static_cast<std::ptrdiff_t>(begin),
                        view.sequences.begin() + static_cast<std::ptrdiff_t>(end));
  const auto is_own = [&](const Segment& segment) {
    return std::find(part.sequences.begin(), part.sequences.end(), segment.sequence) !=
           part.sequences.end();
  };
  std::copy_if(view.prefix.begin(), view.prefix.end(), std::back_inserter(part.prefix), is_own);
  std::copy_if(view.body.begin(), view.body.end(), std::back_inserter(part.body), is_own);
  return part;
}

nn::TokenView take_places(const nn::TokenView& view, Range places) {
  nn::TokenView part{view.patch, view.sequences, {}, {}, {}};
  int64_t at = 0;
  for (size_t i = 0; i < view.body.size(); ++i) {
    const Segment& s = view.body[i];
    for (const Range& range : at_places({s.ids}, {places.begin - at, places.end - at})) {
      part.body.push_back({s.sequence, range});
      part.lengths.push_back(std::max(view.lengths.at(i), s.ids.end));
      if (!view.canvas.empty()) part.canvas.push_back(view.canvas.at(i));
    }
    at += s.ids.size();
  }
  // A rank without tokens still takes part in a pass over canvases.
  if (part.canvas.empty() && !view.canvas.empty()) part.canvas.push_back(view.canvas.front());
  return part;
}

}  // namespace tessera::parallel
