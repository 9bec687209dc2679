#include "load/quantisation.h"

#include <gtest/gtest.h>

#include "scratch_folder.h"

namespace tessera::load {
namespace {

using base::Json;
using tensor::DType;
using tensor::Tensor;

TEST(Quantisation, PanelsAreWhatHasThreeAxes) {
  const ScratchFolder folder;
  std::map<std::string, Tensor> tensors{{"rows", Tensor::zeros({64, 128}, DType::i8)},
                                        {"panels", Tensor::zeros({2, 2, 2048}, DType::i8)},
                                        {"half", Tensor::zeros({4, 2, 1024}, DType::i8)}};
  for (const char* name : {"rows", "panels", "half"})
    tensors[scales_of(name)] = Tensor::zeros({64}, DType::f32);
  write_safetensors(folder.path("model.safetensors"), tensors);
  const TensorSet set = open_component(folder.path());
  EXPECT_EQ(order_of(set, "rows"), WeightOrder::rows);
  EXPECT_EQ(order_of(set, "panels"), WeightOrder::panels);
  EXPECT_EQ(order_of(set, "half"), WeightOrder::half);
  for (const auto& [name, x] : tensors)
    if (!name.ends_with("_scale")) {
      EXPECT_EQ(stored_shapes(set, name, 64, 128).values, x.shape());
    }
  EXPECT_EQ(stored_shapes(set, "panels", 64, 127).values, (tensor::Shape{64, 127}))
      << "panels have no tails";
}

TEST(Quantisation, ScalesBelongToWholeNumbers) {
  const ScratchFolder folder;
  write_safetensors(folder.path("model.safetensors"), {{"a", Tensor::zeros({2, 4}, DType::i8)},
                                                       {"a_scale", Tensor::zeros({2}, DType::f32)},
                                                       {"b", Tensor::zeros({2, 4}, DType::f32)},
                                                       {"b_scale", Tensor::zeros({2}, DType::f32)},
                                                       {"c", Tensor::zeros({2, 4}, DType::i8)}});
  const TensorSet tensors = open_component(folder.path());
  EXPECT_TRUE(is_quantised(tensors, "a"));
  EXPECT_TRUE(holds_scales(tensors, "a_scale"));
  for (const char* name : {"b", "c", "a_scale", "none"})
    EXPECT_FALSE(is_quantised(tensors, name)) << name;
  for (const char* name : {"b_scale", "a", "_scale"})
    EXPECT_FALSE(holds_scales(tensors, name)) << name;
  EXPECT_EQ(packed_as(tensors, "a", DType::bf16, 4).dtype, DType::bf16)
      << "the folder does not say so";
  TensorSet said = tensors;
  said.hold_dense_in_int8(false);
  EXPECT_EQ(packed_as(said, "a", DType::bf16, 4), DType::i8);
  EXPECT_EQ(packed_as(said, "b", DType::bf16, 4), DType::bf16);
  said.hold_dense_in_int8(true);
  EXPECT_TRUE(packed_as(said, "a", DType::bf16, 4).int8_rows);
  EXPECT_FALSE(packed_as(said, "a", DType::i8, 4).int8_rows) << "an expert";
}

TEST(Quantisation, NibblesAreWhatHasScalesOfGroups) {
  const ScratchFolder folder;
  write_safetensors(folder.path("model.safetensors"),
                    {{"a", Tensor::zeros({2, 20}, DType::u8)},
                     {"a_scale", Tensor::zeros({2, 2}, DType::bf16)},
                     {"b", Tensor::zeros({2, 20}, DType::u8)},
                     {"b_scale", Tensor::zeros({2, 2}, DType::f32)},
                     {"c", Tensor::zeros({2, 4}, DType::i8)},
                     {"c_scale", Tensor::zeros({2}, DType::f32)}});
  const TensorSet tensors = open_component(folder.path());
  EXPECT_TRUE(is_int4(tensors, "a") && is_quantised(tensors, "a"));
  EXPECT_TRUE(holds_scales(tensors, "a_scale"));
  EXPECT_FALSE(is_int4(tensors, "b") || is_quantised(tensors, "b"));
  EXPECT_FALSE(is_int4(tensors, "c"));
  const StoredShapes four = stored_shapes(tensors, "a", 2, 40),
                     eight = stored_shapes(tensors, "c", 2, 4);
  EXPECT_EQ(four.values, (tensor::Shape{2, 20}));
  EXPECT_EQ(four.scales, (tensor::Shape{2, 2}));
  EXPECT_EQ(four.scales_dtype, DType::bf16);
  EXPECT_EQ(eight.values, (tensor::Shape{2, 4}));
  EXPECT_EQ(eight.scales, (tensor::Shape{2}));
  expect_says(model_error([&] { stored_shapes(tensors, "a", 2, 39); }), "an even number");
}

TEST(Quantisation, PanelsOfNibblesHoldTheirScales) {
  const ScratchFolder folder;
  write_safetensors(folder.path("model.safetensors"),
                    {{"a", Tensor::zeros({2, 3, 1152}, DType::u8)},
                     {"b", Tensor::zeros({2, 3, 576}, DType::u8)},
                     {"c", Tensor::zeros({2, 3, 1152}, DType::u8)},
                     {"c_scale", Tensor::zeros({64, 6}, DType::bf16)},
                     {"d", Tensor::zeros({2, 3, 1024}, DType::u8)}});
  const TensorSet tensors = open_component(folder.path());
  for (const char* name : {"a", "b", "c"})
    EXPECT_TRUE(is_int4(tensors, name) && is_quantised(tensors, name)) << name;
  EXPECT_FALSE(is_int4(tensors, "d") || is_quantised(tensors, "d"));
  EXPECT_EQ(order_of(tensors, "a"), WeightOrder::panels);
  EXPECT_EQ(order_of(tensors, "b"), WeightOrder::half);
  EXPECT_TRUE(stored_shapes(tensors, "a", 64, 192).within);
  EXPECT_FALSE(stored_shapes(tensors, "c", 64, 192).within) << "an earlier folder";
  EXPECT_EQ(stored_shapes(tensors, "b", 32, 192).values, (tensor::Shape{2, 3, 576}));
  EXPECT_EQ(elements_of(tensors, "a"), 64 * 192);
}

TEST(Quantisation, ACutTakesScalesToo) {
  Tensor w = Tensor::empty({4, 80}, DType::f32);
  for (int64_t i = 0; i < w.elements(); ++i) w.data<float>()[i] = static_cast<float>(i % 37) - 18;
  const ops::StoredMatrix four = ops::quantise_groups(w), eight = ops::quantise_rows(w);
  const auto same = [](const ops::StoredMatrix& a, const ops::StoredMatrix& b) {
    return a.values.to_floats() == b.values.to_floats() &&
           a.scales.to_floats() == b.scales.to_floats();
  };
  const nn::Cut rows{0, {{1, 3}}}, columns{1, {{0, 32}, {64, 80}}};
  const Tensor of_rows = nn::taken(w, rows), of_columns = nn::taken(w, columns);
  EXPECT_TRUE(same(taken(four, rows, "w"), ops::quantise_groups(of_rows)));
  EXPECT_TRUE(same(taken(four, columns, "w"), ops::quantise_groups(of_columns)));
  EXPECT_TRUE(same(taken(eight, rows, "w"), ops::quantise_rows(of_rows)));
  EXPECT_EQ(taken(eight, columns, "w").scales.to_floats(), eight.scales.to_floats());
  EXPECT_EQ(taken(w, columns, "w").values.to_floats(), of_columns.to_floats());
  EXPECT_TRUE(same(taken(four, {}, "w"), four));
  for (const nn::Cut& through : {nn::Cut{1, {{0, 40}}}, nn::Cut{1, {{16, 80}}}}) {
    try {
      taken(four, through, "the_matrix");
      ADD_FAILURE() << "it goes through a group";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::plan);
      expect_says(e.what(), "the_matrix");
      expect_says(e.what(), "expert=");
    }
  }
}

TEST(Int8Filters, AreThoseOfWideResidualBlocks) {
  const tensor::Shape wide{128, 64, 3, 3}, narrow{64, 32, 3, 3};
  EXPECT_TRUE(is_int8_filter("decoder.up_blocks.0.resnets.1.conv2.weight", wide));
  EXPECT_TRUE(is_int8_filter("decoder.mid_block.resnets.0.conv1.conv.weight", {64, 64, 3, 3, 3}));
  EXPECT_FALSE(is_int8_filter("decoder.up_blocks.0.resnets.1.conv2.weight", narrow));
  EXPECT_TRUE(is_int8_filter("decoder.up_blocks.0.resnets.1.conv2.weight", narrow, 1));
  for (const char* other :
       {"decoder.conv_in.weight", "decoder.up_blocks.0.upsamplers.0.conv.weight",
        "decoder.up_blocks.2.resnets.0.conv_shortcut.weight",
        "encoder.mid_block.resnets.0.conv1.bias"})
    EXPECT_FALSE(is_int8_filter(other, wide)) << other;
}

}  // namespace
}  // namespace tessera::load
