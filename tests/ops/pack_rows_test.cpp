#include "ops/pack_rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "ops/packing.h"
#include "tessera/error.h"

namespace tessera::ops {
namespace {

TEST(PackRows, HasTheFormThatIsAskedFor) {
  if (!packs_in_panels(Device::cpu)) GTEST_SKIP() << "the reference kernels have no panels";
  std::vector<float> values(40 * 66);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 37 % 101) - 50;
  const Tensor w = Tensor::from(std::span<const float>(values), {40, 66});
  const StoredRows rows{Tensor::empty({40, 66}, DType::f32, Device::meta),
                        [&](int64_t first, int64_t count, std::byte* to) {
                          std::memcpy(to, values.data() + first * 66,
                                      static_cast<size_t>(count * 66) * sizeof(float));
                        }};
  for (const WeightForm& form :
       {WeightForm(DType::f32), WeightForm(DType::bf16), WeightForm::of_rows(false)})
    for (const bool paired : {false, true}) {
      const Weight got = pack_rows(rows, paired ? rows : StoredRows{}, form),
                   want = paired ? pack_paired_weight(w, w, form) : pack_weight(w, form);
      EXPECT_EQ(got->data.to_floats(), want->data.to_floats()) << name_of(form);
      EXPECT_EQ(got->int8_rows, form.int8_rows);
      EXPECT_EQ(got->paired, paired);
    }
  EXPECT_THROW(pack_rows(rows, {}, WeightForm::of_rows(true)), Error);
}

}  // namespace
}  // namespace tessera::ops
