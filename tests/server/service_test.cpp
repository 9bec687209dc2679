#include "server/service.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

// Busy since `begun`, with steps of `step` seconds; the last step ends at `now`.
Service reservation(double begun, double step, double now) {
  Service service;
  service.begin(begun);
  service.step(now - step);
  EXPECT_EQ(service.step(now), 2 * step);
  return service;
}

TEST(Service, WhoGotLessThanHalfAsMuchComesBefore) {
  const Service old = reservation(0, 1, 100), fresh = reservation(90, 1, 100),
                half = reservation(50, 1, 100);
  EXPECT_TRUE(fresh.comes_before(old, 100));
  EXPECT_FALSE(old.comes_before(fresh, 100));
  EXPECT_FALSE(half.comes_before(old, 100)) << "exactly half";
  EXPECT_FALSE(old.comes_before(old, 100)) << "of equals none";
}

TEST(Service, OneThatDoesNotComputeYetComesBeforeNobody) {
  Service reads;
  reads.begin(99);
  const Service old = reservation(0, 1, 100);
  EXPECT_FALSE(reads.comes_before(old, 100));
  EXPECT_EQ(reads.step(100), 0) << "what it read was no step";
  EXPECT_TRUE(reads.comes_before(old, 100));
}

// A third of the speed remains, and yielded time does not count.
TEST(Service, StandsBackTwiceAsLongAsAStep) {
  Service service;
  service.begin(0);
  service.step(1);
  double now = 1;
  for (int i = 0; i < 10; ++i) {
    const double most = service.step(now += 3);
    EXPECT_EQ(most, 6);
    service.go_on(now += most);
  }
  EXPECT_EQ(now, 91);
  EXPECT_EQ(service.attained(now), 31);
}

TEST(Service, IsThatOfTheJobThatJoinedLast) {
  Service joined = reservation(0, 1, 100);
  const Service old = reservation(50, 1, 100);
  EXPECT_FALSE(joined.comes_before(old, 100));
  joined.begin(99);
  EXPECT_TRUE(joined.comes_before(old, 100));
  EXPECT_EQ(joined.step(103), 6) << "its steps are those of the run";
}

}  // namespace
}  // namespace tessera::server
