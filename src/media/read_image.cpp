#include "media/read_image.h"

#include <png.h>
#include <turbojpeg.h>
#include <webp/decode.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "base/fail.h"
#include "base/input_file.h"
#include "media/exif.h"

namespace tessera::media {
namespace {

constexpr int64_t kMostBytes = int64_t{256} << 20;

size_t number(std::string_view bytes, size_t at, size_t size, bool little = false) {
  size_t value = 0;
  for (size_t i = 0; i < size; ++i)
    value = value << 8 | static_cast<unsigned char>(bytes[little ? at + size - 1 - i : at + i]);
  return value;
}

void check_size(int64_t width, int64_t height, const std::string& name) {
  require(width >= 1 && height >= 1, ErrorCode::usage, "'{}' is an image without pixels", name);
  require(width <= kMostPixels && height <= kMostPixels / width, ErrorCode::usage,
          "'{}' has {} x {} pixels; expected at most 2^26, as 8192 x 8192", name, width, height);
}

// Splits RGBA into colour and alpha; no alpha without `has_alpha`.
ReadImage parted(int width, int height, const std::vector<uint8_t>& rgba, bool has_alpha) {
  ReadImage result{{width, height, {}}, {}};
  const size_t pixels = size_t(width) * size_t(height);
  result.image.rgb.resize(pixels * 3);
  if (has_alpha) result.alpha.resize(pixels);
  for (size_t i = 0; i < pixels; ++i) {
    std::copy_n(&rgba[i * 4], 3, &result.image.rgb[i * 3]);
    if (has_alpha) result.alpha[i] = rgba[i * 4 + 3];
  }
  return result;
}

// A PNG file without text, profile and gamma chunks, which do not affect pixels; and the Exif data.
struct PngParts {
  std::string needed;
  std::string_view exif;
};

PngParts parts_of_png(std::string_view bytes, const std::string& name) {
  constexpr size_t kSignature = 8, kAround = 12;
  PngParts parts{std::string(bytes.substr(0, kSignature)), {}};
  for (size_t at = kSignature; at < bytes.size();) {
    require(bytes.size() - at >= kAround && number(bytes, at, 4) <= bytes.size() - at - kAround,
            ErrorCode::usage, "'{}' is a PNG image that ends too early", name);
    const size_t length = number(bytes, at, 4);
    const std::string_view type = bytes.substr(at + 4, 4);
    if (type == "eXIf") parts.exif = bytes.substr(at + 8, length);
    if (type == "IHDR" || type == "PLTE" || type == "tRNS" || type == "IDAT" || type == "IEND")
      parts.needed += bytes.substr(at, kAround + length);
    at += kAround + length;
    if (type == "IEND") return parts;
  }
  fail(ErrorCode::usage, "'{}' is a PNG image that ends too early", name);
}

// Owns libpng's structures of an image.
struct PngRecord {
  png_image image{};
  PngRecord() { image.version = PNG_IMAGE_VERSION; }
  ~PngRecord() { png_image_free(&image); }
  PngRecord(const PngRecord&) = delete;
  PngRecord& operator=(const PngRecord&) = delete;
};

ReadImage read_png(std::string_view bytes, const std::string& name, int& orientation) {
  const PngParts parts = parts_of_png(bytes, name);
  orientation = exif_orientation(parts.exif);
  PngRecord png;
  const bool begun =
      png_image_begin_read_from_memory(&png.image, parts.needed.data(), parts.needed.size()) != 0;
  require(begun, ErrorCode::usage, "'{}' is no PNG image that can be read: {}", name,
          png.image.message);
  check_size(png.image.width, png.image.height, name);
  png.image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  const bool has_alpha = (png.image.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  png.image.format = PNG_FORMAT_RGBA;
  std::vector<uint8_t> rgba(PNG_IMAGE_SIZE(png.image));
  const auto width = static_cast<int>(png.image.width), height = static_cast<int>(png.image.height);
  require(png_image_finish_read(&png.image, nullptr, rgba.data(), 0, nullptr) != 0,
          ErrorCode::usage, "'{}' is a damaged PNG image: {}", name, png.image.message);
  return parted(width, height, rgba, has_alpha);
}

// Exif data of a JPEG file, stored before the pixels.
std::string_view exif_of_jpeg(std::string_view bytes) {
  constexpr std::string_view kHeader("Exif\0\0", 6);
  for (size_t at = 2; at + 4 <= bytes.size() && bytes[at] == '\xff';) {
    const size_t marker = number(bytes, at + 1, 1), length = number(bytes, at + 2, 2);
    if (marker == 0xff) {  // fill byte
      ++at;
      continue;
    }
    if (marker == 0xda || length < 2 || at + 2 + length > bytes.size()) break;
    const std::string_view body = bytes.substr(at + 4, length - 2);
    if (marker == 0xe1 && body.starts_with(kHeader)) return body.substr(kHeader.size());
    at += 2 + length;
  }
  return {};
}

struct DestroyJpeg {
  void operator()(void* decoder) const { tjDestroy(decoder); }
};

// Converts CMYK inks, stored inverted by Adobe's programs, to RGB.
std::vector<uint8_t> colours_of(const std::vector<uint8_t>& inks) {
  std::vector<uint8_t> rgb(inks.size() / 4 * 3);
  for (size_t i = 0; i < inks.size() / 4; ++i)
    for (size_t c = 0; c < 3; ++c)
      rgb[i * 3 + c] = static_cast<uint8_t>((inks[i * 4 + c] * inks[i * 4 + 3] + 127) / 255);
  return rgb;
}

ReadImage read_jpeg(std::string_view bytes, const std::string& name, int& orientation) {
  orientation = exif_orientation(exif_of_jpeg(bytes));
  const std::unique_ptr<void, DestroyJpeg> decoder(tjInitDecompress());
  require(decoder != nullptr, ErrorCode::memory, "there is no memory for a JPEG decoder");
  const auto* const from = reinterpret_cast<const unsigned char*>(bytes.data());
  int width = 0, height = 0, sampling = 0, colours = 0;
  require(tjDecompressHeader3(decoder.get(), from, bytes.size(), &width, &height, &sampling,
                              &colours) == 0,
          ErrorCode::usage, "'{}' is no JPEG image that can be read: {}", name,
          tjGetErrorStr2(decoder.get()));
  check_size(width, height, name);
  const bool inks = colours == TJCS_CMYK || colours == TJCS_YCCK;
  std::vector<uint8_t> pixels(size_t(width) * size_t(height) * (inks ? 4 : 3));
  const int status =
      tjDecompress2(decoder.get(), from, bytes.size(), pixels.data(), width, 0, height,
                    inks ? TJPF_CMYK : TJPF_RGB, TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS);
  const std::string message = status == 0 ? "" : tjGetErrorStr2(decoder.get());
  // Extra bytes between two parts of a file are harmless; missing bytes are not.
  const bool harmless = status == 0 || (tjGetErrorCode(decoder.get()) == TJERR_WARNING &&
                                        message.find("xtraneous") != std::string::npos);
  require(harmless, ErrorCode::usage, "'{}' is a damaged JPEG image: {}", name, message);
  return {{width, height, inks ? colours_of(pixels) : std::move(pixels)}, {}};
}

// Exif data of a WebP file, from a chunk.
std::string_view exif_of_webp(std::string_view bytes) {
  for (size_t at = 12; at + 8 <= bytes.size();) {
    const size_t length = number(bytes, at + 4, 4, true);
    if (length > bytes.size() - at - 8) break;
    if (bytes.substr(at, 4) == "EXIF") {
      const std::string_view body = bytes.substr(at + 8, length);
      return body.starts_with("Exif") && length > 6 ? body.substr(6) : body;
    }
    at += 8 + length + length % 2;
  }
  return {};
}

ReadImage read_webp(std::string_view bytes, const std::string& name, int& orientation) {
  orientation = exif_orientation(exif_of_webp(bytes));
  const auto* const from = reinterpret_cast<const uint8_t*>(bytes.data());
  WebPBitstreamFeatures features;
  require(WebPGetFeatures(from, bytes.size(), &features) == VP8_STATUS_OK, ErrorCode::usage,
          "'{}' is no WebP image that can be read", name);
  require(!features.has_animation, ErrorCode::usage,
          "'{}' is an animation; expected a WebP image that stands still", name);
  check_size(features.width, features.height, name);
  std::vector<uint8_t> rgba(size_t(features.width) * size_t(features.height) * 4);
  require(WebPDecodeRGBAInto(from, bytes.size(), rgba.data(), rgba.size(), features.width * 4) !=
              nullptr,
          ErrorCode::usage, "'{}' is a damaged WebP image", name);
  return parted(features.width, features.height, rgba, features.has_alpha != 0);
}

// Rotates or mirrors pixels of `bytes` bytes to be upright.
std::vector<uint8_t> reoriented(const std::vector<uint8_t>& from, size_t width, size_t height,
                                size_t bytes, int orientation) {
  const bool swaps = orientation >= 5;
  const size_t wide = swaps ? height : width, tall = swaps ? width : height;
  // Exif orientations that mirror the file's columns or rows.
  const bool right_to_left =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool upwards = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  std::vector<uint8_t> to(from.size());
  for (size_t y = 0; y < tall; ++y)
    for (size_t x = 0; x < wide; ++x) {
      size_t column = swaps ? y : x, line = swaps ? x : y;
      if (right_to_left) column = width - 1 - column;
      if (upwards) line = height - 1 - line;
      std::copy_n(&from[(line * width + column) * bytes], bytes, &to[(y * wide + x) * bytes]);
    }
  return to;
}

void turn(int orientation, ReadImage& image_read) {
  if (orientation == 1) return;
  Image& image = image_read.image;
  const auto width = static_cast<size_t>(image.width), height = static_cast<size_t>(image.height);
  image.rgb = reoriented(image.rgb, width, height, 3, orientation);
  if (!image_read.alpha.empty())
    image_read.alpha = reoriented(image_read.alpha, width, height, 1, orientation);
  if (orientation >= 5) std::swap(image.width, image.height);
}

}  // namespace

ReadImage read_image(const std::string& bytes, const std::string& name) {
  const std::string_view view(bytes);
  int orientation = 1;
  ReadImage result;
  if (view.starts_with("\x89PNG\r\n\x1a\n"))
    result = read_png(view, name, orientation);
  else if (view.starts_with("\xff\xd8\xff"))
    result = read_jpeg(view, name, orientation);
  else if (view.starts_with("RIFF") && view.substr(std::min<size_t>(view.size(), 8), 4) == "WEBP")
    result = read_webp(view, name, orientation);
  else
    fail(ErrorCode::usage, "'{}' is no PNG, JPEG or WebP image{}", name,
         bytes.empty() ? ": it is empty" : "");
  turn(orientation, result);
  return result;
}

ReadImage read_image_file(const std::string& path) {
  return read_image(base::read_file(path, kMostBytes, ErrorCode::usage), path);
}

}  // namespace tessera::media
