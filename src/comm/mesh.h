#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "tessera/plan.h"

namespace tessera::comm {

/// Names of axes of a mesh.
using AxisNames = std::span<const std::string_view>;

/// Ranks as a grid with named axes, outermost first: neighbours differ along the last axis.
class Mesh {
 public:
  /// A single rank without axes.
  Mesh() = default;
  /// Throws Error(plan) for a size below 1 and for a repeated name.
  explicit Mesh(std::vector<Axis> axes);

  const std::vector<Axis>& axes() const { return axes_; }
  int size() const;
  /// Ranks along an axis. Throws Error(plan) for an unknown name, as all members do.
  int size(std::string_view axis) const;
  int coordinate(int rank, std::string_view axis) const;

  /// Ranks with differences to `rank` along these axes only, itself included, ascending.
  std::vector<int> group(int rank, AxisNames axes) const;
  /// The run of `count` neighbours with `rank` in this group, for entries laid over the axes. The
  /// last run may be shorter.
  std::vector<int> overlay(int rank, AxisNames axes, int count) const;
  /// The communicator of the own group(). All ranks of `world`, the ranks of this mesh, call in the
  /// same order as their other calls of group().
  std::unique_ptr<Communicator> communicator(Communicator& world, AxisNames axes) const;

 private:
  struct AxisLayout {
    int size, stride;
  };
  AxisLayout layout_of(std::string_view axis) const;
  std::vector<Axis> axes_;
};

}  // namespace tessera::comm
