#include "parallel/experts/timetable.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::parallel {
namespace {

std::vector<int> lags(const std::string& plan, int layer, int layers = 4, int steps = 8) {
  const Timetable table(parse_plan(plan), layers, steps);
  std::vector<int> all;
  for (int s = 0; s < steps; ++s) all.push_back(table.lag(s, layer));
  return all;
}

TEST(Timetable, AgesFollowTheSchedule) {
  EXPECT_EQ(lags("", 0), (std::vector<int>{0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(lags("schedule=interweaved", 0), (std::vector<int>{0, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(lags("schedule=displaced", 0), (std::vector<int>{0, 1, 2, 2, 2, 2, 2, 2}));
  EXPECT_EQ(lags("schedule=displaced,warmup=3", 0), (std::vector<int>{0, 0, 0, 1, 2, 2, 2, 2}));
  EXPECT_EQ(lags("schedule=displaced,sync-every=4", 0), (std::vector<int>{0, 1, 2, 2, 0, 1, 2, 2}));
  EXPECT_EQ(lags("schedule=displaced,cooldown=3", 0), (std::vector<int>{0, 1, 2, 2, 2, 0, 0, 0}));
  EXPECT_EQ(lags("schedule=displaced,warmup=8", 0), lags("", 0));
}

TEST(Timetable, ChosenLayersStaySynchronous) {
  const auto asynchronous = [](const std::string& rule) {
    const Timetable table(parse_plan("schedule=interweaved,sync=" + rule), 5, 8);
    std::string text;
    for (int l = 0; l < 5; ++l) text += table.asynchronous(l) ? 'a' : 's';
    return text;
  };
  EXPECT_EQ(asynchronous("none"), "aaaaa");
  EXPECT_EQ(asynchronous("deep"), "aasss");
  EXPECT_EQ(asynchronous("shallow"), "ssaaa");
  EXPECT_EQ(asynchronous("staggered"), "asasa");
  EXPECT_EQ(asynchronous("4+0"), "saaas");
}

TEST(Timetable, WhatNobodyReadsIsLeftOut) {
  const Timetable interweaved(parse_plan("schedule=interweaved,sync-every=4"), 2, 8);
  const Timetable displaced(parse_plan("schedule=displaced"), 2, 8);
  const Timetable cooled(parse_plan("schedule=interweaved,cooldown=2"), 2, 8);
  std::string a, b, c;
  for (int s = 0; s < 8; ++s) {
    a += interweaved.consumed(s, 0) ? '1' : '0';
    b += displaced.consumed(s, 0) ? '1' : '0';
    c += cooled.consumed(s, 0) ? '1' : '0';
  }
  EXPECT_EQ(a, "11101110");
  EXPECT_EQ(b, "11111100");
  EXPECT_EQ(c, "11111011") << "the step before the first of the last two";
}

TEST(Timetable, FullStepsCountFromTheEnd) {
  const Timetable table(parse_plan("schedule=interweaved,conditional=low,stride=3,warmup=2"), 2, 8);
  std::string full;
  for (int s = 0; s < 8; ++s) full += table.full(s, 0) ? '1' : '0';
  EXPECT_EQ(full, "11100100");
  EXPECT_FALSE(Timetable(parse_plan("conditional=low,conditional-layers=async"), 2, 8).reuses(0));
  EXPECT_FALSE(Timetable(parse_plan("conditional=low,stride=1"), 2, 8).reuses(0));
}

TEST(Timetable, AdaptiveLayersReadTheirOwnStep) {
  const Timetable table(parse_plan("schedule=adaptive,sync=1,warmup=2"), 2, 8);
  for (int s = 0; s < 8; ++s) {
    EXPECT_EQ(table.lag(s, 0), 0);
    EXPECT_EQ(table.full(s, 0), s < 2);
    EXPECT_TRUE(table.full(s, 1));
    EXPECT_TRUE(table.consumed(s, 0));
  }
  EXPECT_TRUE(table.adaptive(0) && table.reuses(0));
  EXPECT_FALSE(table.adaptive(1) || table.reuses(1));
}

TEST(Timetable, RefusesLayersThatAreNotThere) {
  EXPECT_THROW(Timetable(parse_plan("schedule=interweaved,sync=0+4"), 4, 8), Error);
}

}  // namespace
}  // namespace tessera::parallel
