#include "load/shard_index.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::load {
namespace {

TEST(ShardIndex, SaysWhereTensorsAre) {
  const ShardIndex index = parse_shard_index(
      base::Json::parse(R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors",
                                           "c": "1.safetensors"}})"),
      "index");
  EXPECT_EQ(index, (ShardIndex{{"1.safetensors", {"a", "c"}}, {"2.safetensors", {"b"}}}));
}

TEST(ShardIndex, RefusesWhatIsNoneAndWhatLeavesItsFolder) {
  for (const char* text :
       {"[]", "{}", R"({"weight_map": []})", R"({"weight_map": {}})", R"({"weight_map": {"a": 1}})",
        R"({"weight_map": {"a": "../x"}})", R"({"weight_map": {"a": "/etc/passwd"}})",
        R"({"weight_map": {"a": ""}})", R"({"weight_map": {"a": ".."}})",
        R"({"weight_map": {"a": "x\\y"}})", R"({"weight_map": {"a": "x\u0000y"}})"})
    EXPECT_THROW(parse_shard_index(base::Json::parse(text), "index"), Error) << text;
}

}  // namespace
}  // namespace tessera::load
