#include "planner/cluster_description.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::planner {
namespace {

base::Json small() {
  return {
      {"device", {{"flops", {{"bf16", 1e12}}}, {"memory_bytes", 1e9}, {"memory_bandwidth", 1e10}}},
      {"devices_per_host", 2},
      {"link", {{"bytes_per_second", 1e9}, {"latency", 1e-6}}}};
}

std::string refusal(const base::Json& description) {
  try {
    cluster_of(description, "f.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    return e.what();
  }
  return "was accepted";
}

TEST(ClusterDescription, ReadsWhatItWrites) {
  const Cluster a = cluster_of(small(), "f.json");
  EXPECT_EQ(a.ranks(), 2);
  EXPECT_EQ(to_json(cluster_of(to_json(a), "again")), to_json(a));
  base::Json unfused = small();
  unfused["software"]["unfused"]["rope"] = {{"kernels", 9}, {"bytes", 11}};
  const Cluster b = cluster_of(unfused, "f.json");
  EXPECT_EQ(b.software.unfused.at("rope").bytes, 11);
  EXPECT_EQ(to_json(cluster_of(to_json(b), "again")), to_json(b));
}

TEST(ClusterDescription, NamesTheFieldAndItsValue) {
  const auto refused = [](const char* pointer, const base::Json& value, const char* said) {
    base::Json changed = small();
    changed[base::Json::json_pointer(pointer)] = value;
    EXPECT_NE(refusal(changed).find(said), std::string::npos) << refusal(changed);
  };
  refused("/link/bytes_per_second", -5, "'bytes_per_second' is '-5'");
  refused("/link/latency", "soon", "'latency' is '\"soon\"'");
  refused("/device/memory_bytes", 0, "'memory_bytes' is '0'");
  refused("/device/flops", base::Json::object(), "'flops'");
  refused("/device/curves", {{"matmul", {{1, 2}, {1, 2}}}}, "'matmul'");
  refused("/devices_per_host", 1.5, "'devices_per_host' is '1.5'");
  refused("/groups_per_host", 3, "'groups_per_host'");
  refused("/speed", 3, "speed");
  refused("/software/unfused", 3, "'unfused' is '3'");
  refused("/software/unfused/rope/kernels", -1, "'kernels' is '-1'");
  EXPECT_NE(refusal(base::Json::array()).find("object"), std::string::npos);
}

TEST(ClusterDescription, CurvesGoThroughTheirPoints) {
  const Curve curve{{{1, 0.1}, {100, 0.5}}};
  EXPECT_DOUBLE_EQ(curve.at(1), 0.1);
  EXPECT_DOUBLE_EQ(curve.at(10), 0.3);
  EXPECT_DOUBLE_EQ(curve.at(1e9), 0.5);
  EXPECT_DOUBLE_EQ(Curve{}.at(5), 1);
}

TEST(ClusterDescription, ChangesWhatIsAsked) {
  Cluster c = cluster_of(small(), "f.json");
  change(c, "link=25Gbit,latency=10us,memory=40GB,speed=2");
  EXPECT_DOUBLE_EQ(c.link.bytes_per_second, 25e9 / 8);
  EXPECT_DOUBLE_EQ(c.link.latency, 1e-5);
  EXPECT_DOUBLE_EQ(c.device.memory_bytes, 40e9);
  EXPECT_DOUBLE_EQ(c.device.flops.at("bf16"), 2e12);
  for (const char* wrong : {"link", "link=", "link=-3", "link=3parsec", "colour=2", "bridge=1GB"})
    EXPECT_THROW(change(c, wrong), Error) << wrong;
}

TEST(ClusterDescription, RefusesUnknownHardwareAndTooManyRanks) {
  EXPECT_THROW(open_cluster("abacus", 1), Error);
  EXPECT_THROW(open_cluster("", 1), Error);
  EXPECT_EQ(open_cluster("L40", 16).name, "L40");
}

}  // namespace
}  // namespace tessera::planner
