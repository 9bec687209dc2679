#include <gtest/gtest.h>

#include "base/input_file.h"
#include "tessera/save.h"
#include "whole/golden.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// `videos` of `frames` each, or images where there are no frames.
std::vector<Image> images(int count, int frames, double rate = 0) {
  std::vector<Image> all;
  for (int i = 0; i < count; ++i)
    for (int t = 0; t < std::max(frames, 1); ++t)
      all.push_back({16, 8, std::vector<uint8_t>(size_t{16} * 8 * 3, 100), "a label",
                     frames > 0 ? i : -1, t, rate});
  return all;
}

// Frames a second of an MP4 file: the media clock divided by the duration of a frame.
double rate_of(const std::string& path) {
  const std::string bytes = base::read_file(path, 1 << 20);
  const auto word = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes.at(at + i));
    return double(value);
  };
  return word(bytes.find("mdhd") + 16) / word(bytes.find("stts") + 16);
}

GenerateResult result_of(std::vector<Image> all) {
  GenerateResult result;
  result.images = std::move(all);
  result.steps = 3;
  result.guidance = 2.5f;
  result.sampler = "ddpm";
  return result;
}

TEST(Samples, SayHowTheyWereMade) {
  const GenerateResult result = result_of(images(2, 0));
  GenerateRequest request;
  request.seed = 7;
  auto samples = samples_of(result, request, "a,b");
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(
      samples[1].parameters.substr(0, samples[1].parameters.find(", Version")),
      "a label\nSteps: 3, Sampler: ddpm, CFG scale: 2.5, Seed: 7, Size: 16x8, Model: \"a,b\", "
      "Batch size: 2, Batch pos: 1");
  request.seeds = {3, 4};
  request.negative_prompt = "mist";
  samples = samples_of(result, request, "m");
  EXPECT_NE(samples[1].parameters.find("\nNegative prompt: mist\nSteps"), std::string::npos);
  EXPECT_NE(samples[1].parameters.find("Seed: 4,"), std::string::npos);
  EXPECT_EQ(samples[1].parameters.find("Batch"), std::string::npos) << "it is alone with its seed";
}

TEST(Samples, AreImagesAndVideos) {
  const auto all = images(2, 3);
  const auto samples = samples_of(all);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_TRUE(samples[1].is_video());
  EXPECT_EQ(samples[1].frames.size(), 3u);
  EXPECT_EQ(samples[1].parameters, "");
  EXPECT_TRUE(samples_of(std::span<const Image>()).empty());
}

TEST(Samples, VideosHaveTheRateOfTheirModel) {
  const golden::Scratch scratch;
  for (const double rate : {8.0, 16.0, 12.5}) {
    const auto all = images(1, 2, rate);
    save_sample(samples_of(all)[0], scratch / "v.mp4");
    EXPECT_EQ(rate_of(scratch / "v.mp4"), rate);
    save_sample(samples_of(all)[0], scratch / "v.mp4", 24);
    EXPECT_EQ(rate_of(scratch / "v.mp4"), 24);
  }
}

TEST(Samples, GoIntoFilesAndFolders) {
  const golden::Scratch scratch;
  const auto saved = [&](const std::vector<Image>& all, const std::string& path,
                         bool overwrite = false) {
    std::vector<std::string> names;
    const std::string root = scratch / "";
    const auto add = [&](const std::string& name) { names.push_back(name.substr(root.size())); };
    save_samples(samples_of(all), scratch / path, {{}, overwrite, add});
    for (const std::string& name : names) EXPECT_GT(fs::file_size(scratch / name), 20u) << name;
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(saved(images(1, 0), "x.webp"), Names{"x.webp"});
  EXPECT_EQ(saved(images(2, 0), "x.JPG"), (Names{"x-0000.JPG", "x-0001.JPG"}));
  EXPECT_EQ(saved(images(2, 0), "a/b/"), (Names{"a/b/0000.png", "a/b/0001.png"}));
  EXPECT_EQ(saved(images(1, 0), "a/b"), Names{"a/b/0002.png"}) << "a folder's numbers go on";
  EXPECT_EQ(saved(images(1, 0), "a/b", true), Names{"a/b/0000.png"});
  EXPECT_EQ(saved(images(2, 1, 8), "v.mp4"), (Names{"v-0000.mp4", "v-0001.mp4"}));
  EXPECT_EQ(saved(images(1, 2, 8), "f/"), (Names{"f/0000.png", "f/0001.png"}));
  EXPECT_EQ(saved(images(2, 1, 8), "g/"),
            (Names{"g/video-0000/0000.png", "g/video-0001/0000.png"}));
  EXPECT_EQ(saved({}, "none/"), Names{});
  EXPECT_FALSE(fs::exists(scratch / "none"));
}

TEST(Samples, ANumberThatCouldNotBeWrittenIsGivenBack) {
  const golden::Scratch scratch;
  std::stop_source stop;
  stop.request_stop();
  const auto all = images(1, 0);
  EXPECT_THROW(save_samples(samples_of(all), scratch / "d/", {}, stop.get_token()), Error);
  EXPECT_TRUE(fs::is_empty(scratch / "d"));
}

TEST(Samples, NamesThatDoNotFitAreRefused) {
  const golden::Scratch scratch;
  const auto image = images(1, 0), video = images(1, 2, 8);
  for (const char* name : {"x.mp4", "x.gif", "x"})
    EXPECT_THROW(save_sample(samples_of(image)[0], scratch / name), Error) << name;
  for (const char* name : {"x.png", "x.gif", "x"})
    EXPECT_THROW(save_sample(samples_of(video)[0], scratch / name), Error) << name;
  EXPECT_TRUE(fs::is_empty(scratch / ""));
  EXPECT_TRUE(is_device("/dev/stdout") && !is_device("x.png"));
  EXPECT_TRUE(is_folder("x/") && !is_folder("x"));
}

}  // namespace
}  // namespace tessera
