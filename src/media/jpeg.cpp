#include "media/jpeg.h"

#include <turbojpeg.h>

#include <memory>

#include "base/fail.h"
#include "base/output_file.h"
#include "media/exif.h"

namespace tessera::media {
namespace {

constexpr int kLongestSide = 65500;  // libjpeg's limit
constexpr int kQuality = 95;

struct Destroy {
  void operator()(void* compressor) const { tjDestroy(compressor); }
};
struct Free {
  void operator()(unsigned char* bytes) const { tjFree(bytes); }
};

// An application segment, placed after the JFIF segment.
std::string segment(const std::string& body) {
  const size_t length = body.size() + 2;
  return std::string("\xff\xe1") + static_cast<char>(length >> 8) +
         static_cast<char>(length & 0xff) + body;
}

}  // namespace

std::string encode_jpeg(const Image& image, const std::map<std::string, std::string>& text) {
  const bool fits = image.width > 0 && image.height > 0 && image.width <= kLongestSide &&
                    image.height <= kLongestSide &&
                    image.rgb.size() == size_t(image.width) * size_t(image.height) * 3;
  require(fits, ErrorCode::usage,
          "an image of {} x {} with {} bytes cannot be written as JPEG; expected sides of 1 to {}",
          image.width, image.height, image.rgb.size(), kLongestSide);
  const std::unique_ptr<void, Destroy> compressor(tjInitCompress());
  require(compressor != nullptr, ErrorCode::memory, "there is no memory for a JPEG encoder");
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  const int status =
      tjCompress2(compressor.get(), image.rgb.data(), image.width, 0, image.height, TJPF_RGB,
                  &buffer, &size, TJSAMP_444, kQuality, TJFLAG_ACCURATEDCT);
  const std::unique_ptr<unsigned char, Free> owner(buffer);
  require(status == 0, ErrorCode::usage, "an image of {} x {} cannot be written as JPEG: {}",
          image.width, image.height, tjGetErrorStr2(compressor.get()));
  std::string bytes(reinterpret_cast<const char*>(buffer), size);
  const std::string exif = exif_data(text);
  if (exif.empty()) return bytes;
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes.at(i)); };
  const size_t jfif = at(2) == 0xff && at(3) == 0xe0 ? size_t{2} + at(4) * 256u + at(5) : 0;
  return bytes.insert(2 + jfif, segment(std::string("Exif\0\0", 6) + exif));
}

void write_jpeg(const std::string& path, const Image& image,
                const std::map<std::string, std::string>& text) {
  const std::string bytes = encode_jpeg(image, text);
  base::OutputFile out(path);
  out.write(bytes.data(), bytes.size());
  out.commit();
}

}  // namespace tessera::media
