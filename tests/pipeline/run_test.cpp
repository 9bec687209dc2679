#include "pipeline/run.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tessera/error.h"

namespace tessera::pipeline {
namespace {

// Notes the steps of a run, and fails in a given step.
class Noted final : public Run {
 public:
  explicit Noted(std::string fails = "") : fails_(std::move(fails)) {}
  std::vector<std::string> steps;

 protected:
  void agree() override { note("agree"); }
  void admit() override { note("admit"); }
  void announce() override { note("announce"); }
  const char* loads() const override { return "loads"; }
  void load() override { note("load"); }
  void launch() override { note("launch"); }
  void report() override { note("report"); }

 private:
  void note(const std::string& step) {
    steps.push_back(step);
    if (step == fails_) throw Error(ErrorCode::memory, step);
  }
  std::string fails_;
};

const std::vector<std::string> kAll{"agree", "admit", "announce", "load", "launch", "report"};
const cluster::Ranks kRanks = cluster::Ranks::threads(1, std::chrono::seconds(1));

TEST(Run, TakesAllStepsInOrder) {
  Noted run;
  run.on(kRanks);
  EXPECT_EQ(run.steps, kAll);
}

TEST(Run, EndsWithTheStepThatFails) {
  for (size_t i = 0; i < kAll.size(); ++i) {
    Noted run(kAll[i]);
    EXPECT_THROW(run.on(kRanks), Error) << kAll[i];
    EXPECT_EQ(run.steps, std::vector<std::string>(kAll.begin(), kAll.begin() + i + 1));
  }
}

}  // namespace
}  // namespace tessera::pipeline
