#include <gtest/gtest.h>

#include "planner/cluster_description.h"

namespace tessera::planner {
namespace {

TEST(KnownHardware, IsFoundByTheNamesThatSourcesUse) {
  for (const char* name : {"L40", "A100", "A100-80G NVLink", "H100", "h100-80g nvlink",
                           "H20 NVLink", "RTX 4090", "B200", "V100 NVLink", "T4", "L20", "H200"})
    EXPECT_TRUE(known_cluster(name).has_value()) << name;
  EXPECT_FALSE(known_cluster("abacus").has_value());
}

TEST(KnownHardware, CanBeWrittenAndRead) {
  for (const std::string& name : known_clusters()) {
    const Cluster one = *known_cluster(name);
    EXPECT_EQ(to_json(cluster_of(to_json(one), name)), to_json(one));
    EXPECT_GT(one.device.memory_bytes, 1e10);
  }
}

}  // namespace
}  // namespace tessera::planner
