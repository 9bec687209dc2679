#include "media/video.h"

#include <algorithm>
#include <memory>

#include "base/fail.h"
#include "base/output_file.h"
#include "base/stop.h"
#include "base/utf8.h"
#include "media/libav.h"

namespace tessera::media {
namespace {

// Ends the file in memory of a container and returns its bytes.
std::string close_buffer(AVFormatContext& format) {
  uint8_t* bytes = nullptr;
  const int size = libav().avio_close_dyn_buf(format.pb, &bytes);
  format.pb = nullptr;
  std::string whole(reinterpret_cast<const char*>(bytes), static_cast<size_t>(std::max(size, 0)));
  libav().av_free(bytes);
  return whole;
}

// Deleters for objects of libav.
struct Free {
  void operator()(AVFormatContext* p) const {
    if (p->pb) close_buffer(*p);
    libav().avformat_free_context(p);
  }
  void operator()(AVFrame* p) const { libav().av_frame_free(&p); }
  void operator()(AVPacket* p) const { libav().av_packet_free(&p); }
  void operator()(AVCodecContext* p) const { libav().avcodec_free_context(&p); }
  void operator()(SwsContext* p) const { libav().sws_freeContext(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

int checked(int status, const char* action) {
  if (status >= 0) return status;
  char reason[AV_ERROR_MAX_STRING_SIZE] = "";
  libav().av_strerror(status, reason, sizeof reason);
  fail(ErrorCode::usage, "the video cannot be written: {}: {}", action, reason);
}

const AVCodec* encoder() {
  const AVCodec* codec = libav().avcodec_find_encoder_by_name("libx264");
  if (!codec) codec = libav().avcodec_find_encoder(AV_CODEC_ID_MPEG4);
  require(codec != nullptr, ErrorCode::usage,
          "this machine's libavcodec encodes neither H.264 nor MPEG-4: install Debian's "
          "libavcodec" AV_STRINGIFY(LIBAVCODEC_VERSION_MAJOR) ", or name a folder for the frames");
  return codec;
}

/// Writes an MP4 file in memory.
class Mp4 {
 public:
  Mp4(int width, int height, double rate, const std::map<std::string, std::string>& text) {
    libav().av_log_set_level(AV_LOG_QUIET);  // the library must not print
    AVFormatContext* format = nullptr;
    checked(libav().avformat_alloc_output_context2(&format, nullptr, "mp4", nullptr), "mp4");
    format_.reset(format);
    open_encoder(width, height, libav().av_d2q(rate, 60000));
    stream_ = libav().avformat_new_stream(format_.get(), nullptr);
    require(stream_ != nullptr, ErrorCode::memory, "there is no memory for a video stream");
    stream_->time_base = codec_->time_base;
    stream_->avg_frame_rate = codec_->framerate;
    checked(libav().avcodec_parameters_from_context(stream_->codecpar, codec_.get()),
            "its parameters");
    auto comment = text.find("parameters");  // the parameters end with the program's name
    if (comment == text.end()) comment = text.find("Software");
    if (comment != text.end())
      libav().av_dict_set(&format_->metadata, "comment", base::valid_utf8(comment->second).c_str(),
                          0);
    format_->flags |= AVFMT_FLAG_BITEXACT;  // equal runs give equal files
    checked(libav().avio_open_dyn_buf(&format_->pb), "its memory");
    checked(libav().avformat_write_header(format_.get(), nullptr), "its header");
    frame_.reset(libav().av_frame_alloc());
    packet_.reset(libav().av_packet_alloc());
    colors_.reset(libav().sws_getContext(
        width, height, AV_PIX_FMT_RGB24, width, height, codec_->pix_fmt,
        SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INP, nullptr, nullptr, nullptr));
    require(frame_ && packet_ && colors_, ErrorCode::memory, "there is no memory for a frame");
    frame_->format = codec_->pix_fmt;
    frame_->width = width;
    frame_->height = height;
    checked(libav().av_frame_get_buffer(frame_.get(), 0), "a frame");
  }

  void add(const Image& image) {
    checked(libav().av_frame_make_writable(frame_.get()), "a frame");
    const uint8_t* const from[] = {image.rgb.data()};
    const int stride[] = {3 * image.width};
    libav().sws_scale(colors_.get(), from, stride, 0, image.height, frame_->data, frame_->linesize);
    frame_->pts = next_++;
    encode(frame_.get());
  }
  std::string finish() {
    encode(nullptr);
    checked(libav().av_write_trailer(format_.get()), "its end");
    return close_buffer(*format_);
  }

 private:
  void open_encoder(int width, int height, AVRational rate) {
    const AVCodec* const codec = encoder();
    codec_.reset(libav().avcodec_alloc_context3(codec));
    require(codec_ != nullptr, ErrorCode::memory, "there is no memory for an encoder");
    codec_->width = width;
    codec_->height = height;
    codec_->pix_fmt = AV_PIX_FMT_YUV420P;
    codec_->framerate = rate;
    codec_->time_base = av_inv_q(rate);
    codec_->color_range = AVCOL_RANGE_MPEG;
    codec_->colorspace = AVCOL_SPC_SMPTE170M;
    codec_->thread_count = 1;  // the bytes must not depend on the machine
    codec_->flags |= AV_CODEC_FLAG_BITEXACT;
    if (format_->oformat->flags & AVFMT_GLOBALHEADER) codec_->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    if (codec->id == AV_CODEC_ID_H264) {
      libav().av_opt_set(codec_->priv_data, "crf", "17", 0);
    } else {
      codec_->flags |= AV_CODEC_FLAG_QSCALE;
      codec_->global_quality = 2 * FF_QP2LAMBDA;
    }
    checked(libav().avcodec_open2(codec_.get(), codec, nullptr), codec->name);
  }
  void encode(const AVFrame* frame) {
    checked(libav().avcodec_send_frame(codec_.get(), frame), "a frame");
    for (;;) {
      base::check_stop();
      const int status = libav().avcodec_receive_packet(codec_.get(), packet_.get());
      if (status == AVERROR(EAGAIN) || status == AVERROR_EOF) return;
      checked(status, "a frame");
      packet_->duration = 1;
      libav().av_packet_rescale_ts(packet_.get(), codec_->time_base, stream_->time_base);
      packet_->stream_index = stream_->index;
      checked(libav().av_interleaved_write_frame(format_.get(), packet_.get()), "a frame");
    }
  }

  Owned<AVFormatContext> format_;
  AVStream* stream_ = nullptr;
  Owned<AVCodecContext> codec_;
  Owned<AVFrame> frame_;
  Owned<AVPacket> packet_;
  Owned<SwsContext> colors_;
  int64_t next_ = 0;
};

}  // namespace

void check_mp4() { (void)encoder(); }

std::string encode_mp4(const std::vector<Image>& frames, double rate,
                       const std::map<std::string, std::string>& text) {
  require(!frames.empty(), ErrorCode::usage, "a video without frames cannot be written");
  require(rate >= 0.1 && rate <= 240, ErrorCode::usage, "{} frames a second: expected 0.1 to 240",
          rate);
  const int width = frames[0].width, height = frames[0].height;
  for (const Image& frame : frames)
    require(
        frame.width == width && frame.height == height && width > 0 && height > 0 &&
            width % 2 == 0 && height % 2 == 0 && width <= 16384 && height <= 16384 &&
            frame.rgb.size() == size_t(width) * size_t(height) * 3,
        ErrorCode::usage,
        "a frame of {} x {} with {} bytes does not fit a video of {} x {}; expected even sizes, "
        "all alike",
        frame.width, frame.height, frame.rgb.size(), width, height);
  Mp4 file(width, height, rate, text);
  for (const Image& frame : frames) file.add(frame);
  return file.finish();
}

void write_mp4(const std::string& path, const std::vector<Image>& frames, double rate,
               const std::map<std::string, std::string>& text) {
  const std::string bytes = encode_mp4(frames, rate, text);
  base::OutputFile out(path);
  out.write(bytes.data(), bytes.size());
  out.commit();
}

}  // namespace tessera::media
