#include "comm/mesh.h"

#include <algorithm>

#include "base/fail.h"

namespace tessera::comm {

Mesh::Mesh(std::vector<Axis> axes) : axes_(std::move(axes)) {
  for (const Axis& axis : axes_) {
    require(axis.size >= 1, ErrorCode::plan, "axis '{}' of {} ranks; expected 1 or more", axis.name,
            axis.size);
    const auto same = [&](const Axis& other) { return other.name == axis.name; };
    require(std::count_if(axes_.begin(), axes_.end(), same) == 1, ErrorCode::plan,
            "axis '{}' stands twice in a mesh; name it once", axis.name);
  }
}

int Mesh::size() const {
  int ranks = 1;
  for (const Axis& axis : axes_) ranks *= axis.size;
  return ranks;
}

Mesh::AxisLayout Mesh::layout_of(std::string_view name) const {
  int stride = 1;
  for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
    if (axis->name == name) return {axis->size, stride};
    stride *= axis->size;
  }
  fail(ErrorCode::plan, "a mesh of {} axes has none named '{}'", axes_.size(), name);
}

int Mesh::size(std::string_view axis) const { return layout_of(axis).size; }

int Mesh::coordinate(int rank, std::string_view axis) const {
  const auto [size, stride] = layout_of(axis);
  return rank / stride % size;
}

std::vector<int> Mesh::group(int rank, AxisNames axes) const {
  require(rank >= 0 && rank < size(), ErrorCode::plan, "rank {} of a mesh of {}", rank, size());
  std::vector<int> ranks{rank};
  for (const std::string_view axis : axes) {
    const auto [size, stride] = layout_of(axis);
    std::vector<int> more;
    for (const int member : ranks)
      for (int i = 0; i < size; ++i) more.push_back(member + (i - member / stride % size) * stride);
    ranks = std::move(more);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<int> Mesh::overlay(int rank, AxisNames axes, int count) const {
  require(count >= 1, ErrorCode::plan, "runs of {} ranks; expected 1 or more", count);
  const std::vector<int> members = group(rank, axes);
  const auto place = std::find(members.begin(), members.end(), rank) - members.begin();
  const auto first = members.begin() + place / count * count;
  return {first, first + std::min<std::ptrdiff_t>(count, members.end() - first)};
}

std::unique_ptr<Communicator> Mesh::communicator(Communicator& world, AxisNames axes) const {
  require(world.size() == size(), ErrorCode::rank, "a mesh of {} ranks over a world of {}", size(),
          world.size());
  return world.group(group(world.rank(), axes));
}

}  // namespace tessera::comm
