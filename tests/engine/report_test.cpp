#include "tessera/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tessera {
namespace {

TEST(Report, IsJsonWhateverTheNamesHold) {
  Report report;
  report.model = "a \"quoted\" name \xff\n";
  report.step_seconds = {0.5, 0.25};
  report.layers.push_back({3, 1.5, 64});
  report.precision = Precision::int8;
  report.phase_seconds[Phase::denoise] = 2;
  report.peak_bytes = {.weights = 5, .total = 9};
  EXPECT_FALSE(nlohmann::json::parse(to_json(report)).contains("incast")) << "no fused experts";
  EXPECT_FALSE(nlohmann::json::parse(to_json(report)).contains("launches")) << "no GPU";
  report.launches = {{"fused experts", 6}};
  report.incast = {.most = 7, .bound = 8};
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["step_seconds"].size(), 2u);
  EXPECT_EQ(json["experts_touched"][0]["block"], 3);
  EXPECT_EQ(json["precision"], "bf16") << "as computed, and not as asked for";
  report.int8_experts = true;
  EXPECT_EQ(nlohmann::json::parse(to_json(report))["precision"], "bf16, experts i8");
  EXPECT_EQ(json["phase_seconds"]["denoise"], 2);
  EXPECT_EQ(json["peak_bytes"]["weights"], 5);
  EXPECT_EQ(json["peak_bytes"]["total"], 9);
  EXPECT_EQ(json["launches"]["fused experts"], 6);
  EXPECT_EQ(json["incast"]["most_bytes"], 7);
  EXPECT_EQ(json["incast"]["bound_bytes"], 8);
  Inspection inspection;
  inspection.components.push_back({"vae", "AutoencoderKL", "/x", 10, 20, true, {{"depth", "2"}}});
  inspection.ranks.push_back({.experts = 2, .tokens = 3, .weights = 5, .buffers = 7});
  const auto shown = nlohmann::json::parse(to_json(inspection));
  EXPECT_EQ(shown["components"][0]["facts"]["depth"], "2");
  EXPECT_EQ(shown["ranks"][0]["buffers"], 7);
  report.int4_experts = true;
  EXPECT_EQ(nlohmann::json::parse(to_json(report))["precision"], "bf16, experts i4");
  const auto made =
      nlohmann::json::parse(to_json(QuantiseResult{1, 64, 18, {{"a \xff", 4, 0.25}}}));
  EXPECT_EQ(made["bytes_before"], 64);
  EXPECT_EQ(made["bytes"], 18);
  EXPECT_EQ(made["matrices"][0]["bits"], 4);
  EXPECT_EQ(made["matrices"][0]["relative_error"], 0.25);
}

}  // namespace
}  // namespace tessera
