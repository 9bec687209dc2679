#include "server/queue.h"

#include <gtest/gtest.h>

#include "server/batch.h"

namespace tessera::server {
namespace {

JobPtr job_of(const std::string& client, const std::string& id, const char* request = "{}") {
  auto job = std::make_shared<Job>();
  job->record.client = client;
  job->record.id = id;
  job->record.model = "shapes";
  job->record.request = Json::parse(request);
  return job;
}

std::string ids(FairQueue& queue) {
  std::string all;
  while (const JobPtr job = queue.pop()) all += job->record.id;
  return all;
}

TEST(FairQueue, ClientsTakeTurns) {
  FairQueue queue;
  for (const char* id : {"a", "b", "c", "d"}) queue.push(job_of("anna", id));
  queue.push(job_of("bert", "X"));
  queue.push(job_of("bert", "Y"));
  EXPECT_EQ(ids(queue), "aXbYcd");
}

TEST(FairQueue, WhoWasServedLastWaits) {
  FairQueue queue;
  queue.push(job_of("anna", "a"));
  EXPECT_EQ(queue.pop()->record.id, "a");
  queue.push(job_of("anna", "b"));
  queue.push(job_of("bert", "X"));
  EXPECT_EQ(ids(queue), "Xb");
}

TEST(FairQueue, KnowsThatOrder) {
  FairQueue queue;
  const JobPtr a = job_of("anna", "a"), b = job_of("anna", "b"), x = job_of("bert", "X");
  for (const JobPtr& job : {a, b, x}) queue.push(job);
  EXPECT_EQ(queue.order(), (std::vector<JobPtr>{a, x, b}));
  EXPECT_TRUE(queue.remove(*x));
  EXPECT_FALSE(queue.remove(*x));
  EXPECT_EQ(queue.order(), (std::vector<JobPtr>{a, b}));
  EXPECT_EQ(queue.size(), 2U);
}

TEST(FairQueue, TakesOnlyWhatFits) {
  FairQueue queue;
  for (const char* id : {"a", "b", "c", "d"}) queue.push(job_of("anna", id));
  const auto taken = queue.pop_more(2, [](const Job& job) { return job.record.id != "a"; });
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[0]->record.id + taken[1]->record.id, "bc");
  EXPECT_EQ(ids(queue), "ad");
}

TEST(FairQueue, FindsTheFirstThatFits) {
  FairQueue queue;
  for (const char* id : {"a", "b"}) queue.push(job_of("anna", id));
  queue.push(job_of("bert", "X"));
  const auto is_berts = [](const Job& job) { return job.record.client == "bert"; };
  EXPECT_EQ(queue.find(is_berts)->record.id, "X");
  EXPECT_EQ(queue.find([](const Job&) { return false; }), nullptr);
  EXPECT_EQ(queue.count("anna"), 2U);
  EXPECT_EQ(queue.count("carl"), 0U);
  EXPECT_EQ(queue.size(), 3U) << "nothing is taken";
}

JobPtr image_of(const char* request) {
  const JobPtr job = job_of("anna", "a", request);
  ModelFacts facts;
  facts.classes = 32;
  job->ask = read_request(job->record.request, facts, {});
  return job;
}

TEST(Batch, WhatDiffersInSubjectAndSeedAloneRunsTogether) {
  const JobPtr a = image_of(R"({"classes": ["red"], "steps": 4, "seed": 3})");
  const JobPtr b = image_of(R"({"steps": 4, "classes": ["blue", "green"], "seeds": [5, 6]})");
  EXPECT_EQ(batch_key(*a), batch_key(*b));
  for (const char* other :
       {R"({"classes": ["red"], "steps": 5})", R"({"classes": ["red"], "steps": 4, "guidance": 2})",
        R"({"classes": ["red"], "steps": 4, "negative_prompt": "x"})",
        R"({"prompt": "red", "steps": 4})", R"({"classes": ["red"], "steps": 4, "width": 64})"})
    EXPECT_NE(batch_key(*image_of(other)), batch_key(*a)) << other;
  const std::vector<JobPtr> jobs{a, b};
  const GenerateRequest all = merged_images(jobs);
  EXPECT_EQ(all.classes, (std::vector<std::string>{"red", "blue", "green"}));
  EXPECT_EQ(all.seeds, (std::vector<uint64_t>{3, 5, 6}));
}

TEST(Batch, JobsThatAskForItRunAlone) {
  const JobPtr alone = image_of(R"({"classes": ["red"]})");
  alone->alone = true;
  EXPECT_EQ(batch_key(*alone), "");
  EXPECT_EQ(batch_key(*image_of(R"({"classes": ["red"], "cache": "fbcache"})")), "");
}

}  // namespace
}  // namespace tessera::server
