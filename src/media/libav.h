#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>
}

namespace tessera::media {

// Functions used from libavutil, libavcodec, libavformat and libswscale.
#define TESSERA_LIBAV(X)                    \
  X(util, av_d2q)                           \
  X(util, av_dict_set)                      \
  X(util, av_frame_alloc)                   \
  X(util, av_frame_free)                    \
  X(util, av_frame_get_buffer)              \
  X(util, av_frame_make_writable)           \
  X(util, av_free)                          \
  X(util, av_log_set_level)                 \
  X(util, av_opt_set)                       \
  X(util, av_strerror)                      \
  X(codec, av_packet_alloc)                 \
  X(codec, av_packet_free)                  \
  X(codec, av_packet_rescale_ts)            \
  X(codec, avcodec_alloc_context3)          \
  X(codec, avcodec_find_encoder)            \
  X(codec, avcodec_find_encoder_by_name)    \
  X(codec, avcodec_free_context)            \
  X(codec, avcodec_open2)                   \
  X(codec, avcodec_parameters_from_context) \
  X(codec, avcodec_receive_packet)          \
  X(codec, avcodec_send_frame)              \
  X(format, av_interleaved_write_frame)     \
  X(format, av_write_trailer)               \
  X(format, avformat_alloc_output_context2) \
  X(format, avformat_free_context)          \
  X(format, avformat_new_stream)            \
  X(format, avformat_write_header)          \
  X(format, avio_close_dyn_buf)             \
  X(format, avio_open_dyn_buf)              \
  X(scale, sws_freeContext)                 \
  X(scale, sws_getContext)                  \
  X(scale, sws_scale)

/// The functions of libav, under their own names.
struct Libav {
#define TESSERA_LIBAV_FIELD(library, name) decltype(&::name) name = nullptr;
  TESSERA_LIBAV(TESSERA_LIBAV_FIELD)
#undef TESSERA_LIBAV_FIELD
};

/// Loads libav on the first video, because libav brings 130 libraries along and would slow every
/// start of the program. Throws Error(usage) if missing.
const Libav& libav();

}  // namespace tessera::media
