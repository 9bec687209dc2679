#include "nn/block_stack.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::nn {
namespace {

class Masked : public TokenModel {
 public:
  const Geometry& geometry() const override { return geometry_; }
  DType dtype() const override { return DType::f32; }
  int64_t vocabulary() const override { return 1; }
  PlacementPtr place(const TokenView&) const override { return nullptr; }
  Hidden embed(std::span<const int32_t>, const TokenView&) const override { return {}; }
  void block(int, const StepContext&, const Placement&, Hidden&, const Seams&) const override {}
  Tensor logits(const Hidden&, const TokenView&, const Segments&) const override { return {}; }

 private:
  Geometry geometry_;
};

TEST(TokenModel, AModelThatFillsInMasksRefusesACanvas) {
  EXPECT_THROW(Masked().embed_canvas({}, {}, {}), Error);
}

}  // namespace
}  // namespace tessera::nn
