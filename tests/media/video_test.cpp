#include "media/video.h"

#include <gtest/gtest.h>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
}

#include <cmath>
#include <filesystem>

#include "base/stop.h"
#include "tessera/error.h"

namespace tessera::media {
namespace {

// A bright square moving to the right.
std::vector<Image> film(int frames, int width = 64, int height = 48) {
  std::vector<Image> all;
  for (int f = 0; f < frames; ++f) {
    Image image{width, height, std::vector<uint8_t>(static_cast<size_t>(width * height * 3), 40)};
    for (int y = 16; y < 32; ++y)
      for (int x = 4 * f; x < 4 * f + 16; ++x)
        for (int c = 0; c < 3; ++c) image.rgb[static_cast<size_t>((y * width + x) * 3 + c)] = 200;
    all.push_back(std::move(image));
  }
  return all;
}

// A player's view: frames a second, comment, brightness (16..235) of all frames.
struct Seen {
  double rate = 0;
  std::string comment;
  int width = 0;
  std::vector<std::vector<uint8_t>> frames;
};

void take(AVCodecContext* decoder, AVFrame* frame, Seen& seen) {
  while (avcodec_receive_frame(decoder, frame) == 0) {
    std::vector<uint8_t> luma;
    for (int y = 0; y < frame->height; ++y)
      luma.insert(luma.end(), frame->data[0] + y * frame->linesize[0],
                  frame->data[0] + y * frame->linesize[0] + frame->width);
    seen.width = frame->width;
    seen.frames.push_back(luma);
  }
}

Seen play(const std::string& path) {
  Seen seen;
  AVFormatContext* file = nullptr;
  if (avformat_open_input(&file, path.c_str(), nullptr, nullptr) != 0) return seen;
  avformat_find_stream_info(file, nullptr);
  const AVStream* const stream = file->streams[0];
  seen.rate = av_q2d(stream->avg_frame_rate);
  if (const auto* comment = av_dict_get(file->metadata, "comment", nullptr, 0))
    seen.comment = comment->value;
  AVCodecContext* decoder =
      avcodec_alloc_context3(avcodec_find_decoder(stream->codecpar->codec_id));
  avcodec_parameters_to_context(decoder, stream->codecpar);
  avcodec_open2(decoder, nullptr, nullptr);
  AVPacket* packet = av_packet_alloc();
  AVFrame* frame = av_frame_alloc();
  while (av_read_frame(file, packet) == 0) {
    avcodec_send_packet(decoder, packet);
    av_packet_unref(packet);
    take(decoder, frame, seen);
  }
  avcodec_send_packet(decoder, nullptr);
  take(decoder, frame, seen);
  av_frame_free(&frame);
  av_packet_free(&packet);
  avcodec_free_context(&decoder);
  avformat_close_input(&file);
  return seen;
}

TEST(Video, PlaysBackAsItWas) {
  const std::string path = (std::filesystem::temp_directory_path() / "tessera-video.mp4").string();
  for (const double rate : {8.0, 23.976}) {
    write_mp4(path, film(9), rate, {{"parameters", "a square, seed 1"}});
    const Seen seen = play(path);
    EXPECT_NEAR(seen.rate, rate, 0.01);
    EXPECT_EQ(seen.comment, "a square, seed 1");
    ASSERT_EQ(seen.frames.size(), 9u);
    EXPECT_EQ(seen.width, 64);
    for (int f = 0; f < 9; ++f) {
      const auto& luma = seen.frames[static_cast<size_t>(f)];
      EXPECT_NEAR(luma[static_cast<size_t>(24 * 64 + 4 * f + 8)], 16 + 200 * 219 / 255, 4) << f;
      EXPECT_NEAR(luma[static_cast<size_t>(4 * 64 + 60)], 16 + 40 * 219 / 255, 4) << f;
    }
  }
  std::filesystem::remove(path);
}

TEST(Video, EqualFramesGiveEqualBytes) {
  EXPECT_EQ(encode_mp4(film(5), 8), encode_mp4(film(5), 8));
}

TEST(Video, OneFrameIsAVideo) { EXPECT_GT(encode_mp4(film(1), 8).size(), 100u); }

TEST(Video, IsNotFinishedAfterAStop) {
  std::stop_source source;
  source.request_stop();
  const base::BindStop bind(source.get_token());
  try {
    encode_mp4(film(3), 8);
    ADD_FAILURE() << "nothing was stopped";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::cancelled) << e.what();
  }
}

TEST(Video, RefusesWhatDoesNotFit) {
  EXPECT_THROW(encode_mp4({}, 8), Error);
  EXPECT_THROW(encode_mp4(film(2), 0), Error);
  EXPECT_THROW(encode_mp4(film(2), 1000), Error);
  EXPECT_THROW(encode_mp4(film(1, 33, 48), 8), Error);
  auto unequal = film(2);
  unequal.push_back(film(1, 128, 48)[0]);
  EXPECT_THROW(encode_mp4(unequal, 8), Error);
}

}  // namespace
}  // namespace tessera::media
