#include "tessera/save.h"

#include "base/output_file.h"
#include "base/stop.h"
#include "media/jpeg.h"
#include "media/png.h"
#include "media/video.h"
#include "media/webp.h"

namespace tessera {
namespace {

media::Image image_of(const Image& image) {
  return {static_cast<int>(image.width), static_cast<int>(image.height), image.rgb};
}

using Texts = std::vector<std::pair<std::string, std::string>>;

}  // namespace

std::string encode_png(const Image& image, const std::stop_token& stop) {
  const base::BindStop bind(stop);
  return media::encode_png(image_of(image));
}

void save_png(const Image& image, const std::string& path, const Texts& text,
              const std::stop_token& stop) {
  const base::BindStop bind(stop);
  media::write_png(path, image_of(image), {text.begin(), text.end()});
}

void save_webp(const Image& image, const std::string& path, const Texts& text,
               const std::stop_token& stop) {
  const base::BindStop bind(stop);
  media::write_webp(path, image_of(image), {text.begin(), text.end()});
}

void save_jpeg(const Image& image, const std::string& path, const Texts& text,
               const std::stop_token& stop) {
  const base::BindStop bind(stop);
  media::write_jpeg(path, image_of(image), {text.begin(), text.end()});
}

void save_mp4(std::span<const Image> frames, double rate, const std::string& path,
              const Texts& text, const std::stop_token& stop) {
  const base::BindStop bind(stop);
  std::vector<media::Image> images;
  for (const Image& frame : frames) images.push_back(image_of(frame));
  media::write_mp4(path, images, rate, {text.begin(), text.end()});
}

void save_text(const std::string& text, const std::string& path) {
  base::OutputFile out(path);
  out.write(text.data(), text.size());
  out.commit();
}

}  // namespace tessera
