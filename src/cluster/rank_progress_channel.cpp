#include "cluster/rank_progress_channel.h"

#include <cstring>
#include <numeric>
#include <string>
#include <string_view>

#include "base/json.h"
#include "comm/collectives.h"
#include "tensor/uncounted.h"

namespace tessera::cluster {
namespace {

const comm::Tag kTag{"looks", -1, TrafficKind::report};

}  // namespace

RankProgressChannel::RankProgressChannel(comm::Communicator& world, bool looks) {
  if (world.size() == 1 || !comm::agreed(world, 0, looks, kTag)) return;
  std::vector<int> members(static_cast<size_t>(world.size()));
  std::iota(members.begin(), members.end(), 0);
  channel_ = world.group(members);
}

void RankProgressChannel::tell(const RankProgress& progress) {
  const tensor::Uncounted aside(tensor::Counts::work);  // outside the prediction
  const std::string text =
      base::Json{{"rank", progress.rank},           {"compute", progress.compute_seconds},
                 {"wait", progress.wait_seconds},   {"sent", progress.sent_bytes},
                 {"experts", progress.expert_ages}, {"kv", progress.kv_ages}}
          .dump();
  const auto bytes = tensor::Tensor::empty({std::ssize(text)}, tensor::DType::u8);
  std::memcpy(bytes.raw(), text.data(), text.size());
  channel_->post(0, bytes, kTag);
}

std::vector<RankProgress> RankProgressChannel::hear() {
  const tensor::Uncounted aside(tensor::Counts::work);  // outside the prediction
  std::vector<RankProgress> rank_progress;
  for (int rank = 1; rank < channel_->size(); ++rank) {
    const tensor::Tensor bytes = channel_->receive(rank, kTag).wait();
    const base::Json fields = base::parse_json(
        {static_cast<const char*>(bytes.raw()), static_cast<size_t>(bytes.bytes())},
        "the progress of rank " + std::to_string(rank));
    rank_progress.push_back({fields.at("rank"), fields.at("compute"), fields.at("wait"),
                             fields.at("sent"), fields.at("experts").get<std::vector<int64_t>>(),
                             fields.at("kv").get<std::vector<int64_t>>()});
  }
  return rank_progress;
}

}  // namespace tessera::cluster
