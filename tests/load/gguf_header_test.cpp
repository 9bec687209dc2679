#include "load/gguf_header.h"

#include <gtest/gtest.h>

#include <cstring>

#include "gguf_image.h"
#include "scratch_folder.h"

namespace tessera::load {
namespace {

FileHeader parsed(const std::string& image) {
  return parse_gguf_header(
      [&](int64_t at, void* to, int64_t bytes) {
        ASSERT_LE(at + bytes, std::ssize(image));
        std::memcpy(to, image.data() + at, static_cast<size_t>(bytes));
      },
      std::ssize(image), "test.gguf");
}

std::string refused(const std::string& image) {
  return model_error([&] { parsed(image); });
}

const std::string kFour(16, '\1');

TEST(GgufHeader, TurnsSizesRoundAndCountsInTheAlignment) {
  const FileHeader header = parsed(GgufImage(64)
                                       .architecture("flux")
                                       .tensor("a", {2, 3}, 0, std::string(24, '\0'))
                                       .tensor("b", {5}, 1, std::string(10, '\0'))
                                       .tensor("q", {2, 64}, 8, std::string(136, '\0'))
                                       .bytes());
  EXPECT_EQ(header.metadata.at(kArchitecture), "flux");
  EXPECT_EQ(header.data_offset % 64, 0);
  EXPECT_EQ(header.tensors.at("a").sizes, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(header.tensors.at("b").begin, 64);
  EXPECT_EQ(header.tensors.at("b").dtype, "F16");
  const TensorEntry& q = header.tensors.at("q");
  EXPECT_EQ(q.begin, 128);
  EXPECT_EQ(q.stored_bytes(), 136);
  EXPECT_EQ(q.bytes(), 512);
  EXPECT_EQ(q.dtype, "F32");
  EXPECT_EQ(q.format, tensor::BlockFormat::q8_0);
}

TEST(GgufHeader, TakesTheSizesBeforeAReshaping) {
  const GgufImage image =
      GgufImage().sizes_before("a", {2, 1, 1, 2}).floats("a", {4}, {1, 2, 3, 4});
  EXPECT_EQ(parsed(image.bytes()).tensors.at("a").sizes, (std::vector<int64_t>{2, 1, 1, 2}));
  expect_says(refused(GgufImage().sizes_before("a", {3}).floats("a", {4}, {1, 2, 3, 4}).bytes()),
              "has 4 elements");
  expect_says(refused(GgufImage().sizes_before("b", {4}).floats("a", {4}, {1, 2, 3, 4}).bytes()),
              "of no tensor");
  expect_says(refused(GgufImage().sizes_before("a", {-4}).floats("a", {4}, {1, 2, 3, 4}).bytes()),
              "has the size -4");
}

TEST(GgufHeader, RefusesListsInLists) {
  std::string list;
  GgufImage::number(list, uint32_t{9});
  GgufImage::number(list, uint64_t{1});
  expect_says(refused(GgufImage().raw_key("k", 9, list).bytes() + kFour),
              "a list of values of type 9");
}

TEST(GgufHeader, SkipsWhatItDoesNotNeed) {
  std::string list;
  GgufImage::number(list, uint32_t{8});
  GgufImage::number(list, uint64_t{2});
  GgufImage::text(list, "one");
  GgufImage::text(list, "");
  const GgufImage image = GgufImage()
                              .raw_key("tokenizer.ggml.tokens", 9, list)
                              .raw_key("flag", 7, std::string(1, '\1'))
                              .raw_key("long", 12, std::string(8, '\0'))
                              .floats("a", {1}, {1});
  EXPECT_EQ(parsed(image.bytes()).tensors.size(), 1u);
  EXPECT_TRUE(parsed(image.bytes()).metadata.empty());
}

TEST(GgufHeader, RefusesHolesOverlapsAndRests) {
  const GgufImage image = GgufImage().floats("a", {4}, {1, 2, 3, 4}).floats("b", {1}, {5});
  const std::string good = image.bytes();
  EXPECT_EQ(parsed(good).tensors.size(), 2u);
  expect_says(refused(good + std::string(64, '\0')), "no rest");
  expect_says(refused(good.substr(0, good.size() - 29)), "no more");
  const std::string once = GgufImage().floats("a", {1}, {1}).bytes();
  for (size_t cut = 0; cut + 1 < once.size() - 31; ++cut)  // every shorter file
    EXPECT_THROW(parsed(once.substr(0, cut)), Error) << cut;
}

// Each byte before the data changed in every way: the file is read, or refused with a single line.
TEST(GgufHeader, SurvivesEveryChangeOfAByte) {
  const std::string good = GgufImage(64)
                               .architecture("flux")
                               .sizes_before("a", {4})
                               .floats("a", {2, 2}, {1, 2, 3, 4})
                               .tensor("q", {1, 32}, 2, std::string(18, '\0'))
                               .bytes();
  const auto before = static_cast<size_t>(parsed(good).data_offset);
  int read = 0;
  for (size_t at = 0; at < before; ++at)
    for (int value = 0; value < 256; value += 5) {
      std::string bad = good;
      bad[at] = static_cast<char>(value);
      try {
        parsed(bad);
        ++read;
      } catch (const Error& error) {
        const std::string message = error.what();
        EXPECT_EQ(error.code(), ErrorCode::model);
        EXPECT_EQ(message.find('\n'), std::string::npos);
        EXPECT_LT(message.size(), 1000u);
      }
    }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace tessera::load
