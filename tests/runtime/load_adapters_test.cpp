#include "runtime/load_adapters.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::runtime {

TEST(LoadAdapters, ReadsAFileAndItsStrength) {
  EXPECT_EQ(parse_lora("a.safetensors").strength, 1);
  EXPECT_EQ(parse_lora("a.safetensors:0.8").strength, 0.8);
  EXPECT_EQ(parse_lora("a:b.safetensors:-1").file, "a:b.safetensors");
  EXPECT_THROW(parse_lora("a.safetensors:much"), Error);
  EXPECT_THROW(parse_lora("a.safetensors:"), Error);
}

}  // namespace tessera::runtime
