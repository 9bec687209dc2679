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

/// Ranks as a grid whose axes have names, outermost first: neighbours differ along the last one.
class Mesh {
 public:
  /// Of one rank, without an axis.
  Mesh() = default;
  /// Throws Error(plan) for a size below 1 and for a name that stands twice.
  explicit Mesh(std::vector<Axis> axes);

  const std::vector<Axis>& axes() const { return axes_; }
  int size() const;
  /// Ranks along an axis. Throws Error(plan) for a name that the mesh does not have, as all do.
  int size(std::string_view axis) const;
  int coordinate(int rank, std::string_view axis) const;

  /// Ranks that differ from `rank` along these axes alone, itself among them, ascending.
  std::vector<int> group(int rank, AxisNames axes) const;
  /// The run of `count` neighbours in that group which holds `rank`: what is laid over the axes.
  /// The last run may be shorter.
  std::vector<int> overlay(int rank, AxisNames axes, int count) const;
  /// The communicator of my group(). All ranks of `world`, whose ranks these are, call it in the
  /// same order as their other calls of group().
  std::unique_ptr<Communicator> communicator(Communicator& world, AxisNames axes) const;

 private:
  struct Along {
    int size, stride;
  };
  Along along(std::string_view axis) const;
  std::vector<Axis> axes_;
};

}  // namespace tessera::comm
