#include "tessera/words.h"

#include <gtest/gtest.h>

#include "tessera/complete.h"
#include "tessera/error.h"
#include "tessera/plan.h"
#include "tessera/request.h"

namespace tessera {
namespace {

template <class Choice>
void expect_one_word_each(Choice last) {
  const auto words = words_of<Choice>();
  EXPECT_EQ(words.size(), static_cast<size_t>(last) + 1);
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    const auto choice = static_cast<Choice>(i);
    EXPECT_EQ(choice_of<Choice>(word_of(choice), "x"), choice) << word_of(choice);
  }
  EXPECT_STREQ(word_of(static_cast<Choice>(static_cast<int>(last) + 1)), "?");
}

TEST(Words, EveryChoiceHasOne) {
  expect_one_word_each(DeviceKind::cuda);
  expect_one_word_each(ExpertActivation::silu);
  expect_one_word_each(FinishReason::length);
  expect_one_word_each(KvCache::block);
  expect_one_word_each(ModelPart::text_encoder_3);
  expect_one_word_each(NoiseSource::philox);
  expect_one_word_each(PassKind::finalise);
  expect_one_word_each(Phase::quantise);
  expect_one_word_each(PlanAxis::tensor);
  expect_one_word_each(Precision::int4);
  expect_one_word_each(SchedulerName::cogvideox_dpm);
  expect_one_word_each(StopAtEos::early);
}

TEST(Words, AnUnknownOneIsToldWithThoseThatAre) {
  try {
    choice_of<StopAtEos>("Early", "`stop_at_eos`");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_STREQ(e.what(), "`stop_at_eos` 'Early' is not known; known are none, block, early");
  }
}

}  // namespace
}  // namespace tessera
