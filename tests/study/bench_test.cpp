#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tessera/engine.h"
#include "tessera/study.h"

namespace tessera {
namespace {

TEST(Bench, RefusesNoThreads) {
  EXPECT_THROW(bench_kernels(0, [](const std::string&) {}), Error);
}

TEST(Bench, StopsWithItsListenerAndPrintsJson) {
  struct Enough {};
  int lines = 0;
  EXPECT_THROW(bench_kernels(1,
                             [&](const std::string& line) {
                               const auto json = nlohmann::json::parse(line);
                               EXPECT_EQ(json.at("bench"), "limits");
                               ++lines;
                               throw Enough{};
                             }),
               Enough);
  EXPECT_EQ(lines, 1);
}

}  // namespace
}  // namespace tessera
