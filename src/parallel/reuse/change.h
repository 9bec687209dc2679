#pragma once

#include <array>
#include <cstdint>

#include "comm/communicator.h"
#include "tensor/tensor.h"

namespace tessera::parallel {

/// Sums of |now - then| and of |then| over the elements of tensors, in whole numbers: equal in any
/// order, so all ranks of a request find the same bits.
class Change {
 public:
  /// Adds dense float matrices of one shape; undefined ones count nothing.
  void add(const tensor::Tensor& now, const tensor::Tensor& then);
  /// Over the ranks of `world` (null: alone), of which some hold `counted` rows and others copies.
  void join(comm::Communicator* world, bool counted);
  /// The quotient of the sums; 0 if nothing changed, infinity if |then| is 0.
  double relative() const;

 private:
  // A number is first + second / kPart.
  std::array<int64_t, 2> moved_{}, base_{};
  bool finite_ = true;
};

}  // namespace tessera::parallel
