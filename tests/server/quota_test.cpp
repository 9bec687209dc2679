#include "server/quota.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

TEST(Quota, AClientHasAShareAtMost) {
  Quota quota(10, 6);
  EXPECT_TRUE(quota.take("anna", 6));
  EXPECT_FALSE(quota.take("anna", 1));
  EXPECT_TRUE(quota.take("berta", 4));
  EXPECT_FALSE(quota.take("berta", 1)) << "all of it is taken";
  quota.give_back("anna", 2);
  EXPECT_TRUE(quota.take("berta", 2));
  EXPECT_EQ(quota.used(), 10U);
  EXPECT_EQ(quota.used_by("anna"), 4U);
  EXPECT_EQ(quota.used_by("nobody"), 0U);
}

TEST(Quota, WhatIsLargerThanAShareIsTakenAlone) {
  Quota quota(10, 6);
  EXPECT_TRUE(quota.take("anna", 100));
  EXPECT_FALSE(quota.take("anna", 1));
  EXPECT_FALSE(quota.take("berta", 1));
  quota.give_back("anna", 100);
  EXPECT_TRUE(quota.take("berta", 1));
  EXPECT_FALSE(quota.take("anna", 100));
  EXPECT_FALSE(quota.take("anna", SIZE_MAX));
}

TEST(QuotaLease, GivesBackOnce) {
  Quota quota(2, 1);
  {
    QuotaLease first(quota, "anna", 1);
    EXPECT_TRUE(first);
    EXPECT_FALSE(QuotaLease(quota, "anna", 1));
    QuotaLease moved = std::move(first);
    EXPECT_EQ(quota.used(), 1U);
    moved = QuotaLease(quota, "berta", 1);
    EXPECT_EQ(quota.used_by("anna"), 0U);
    EXPECT_EQ(quota.used_by("berta"), 1U);
  }
  EXPECT_EQ(quota.used(), 0U);
}

}  // namespace
}  // namespace tessera::server
