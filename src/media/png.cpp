#include "media/png.h"

#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/fail.h"
#include "base/input_file.h"
#include "base/output_file.h"
#include "base/stop.h"
#include "base/utf8.h"

namespace tessera::media {
namespace {

constexpr size_t kAfterHeader = 33;  // signature and IHDR

void append_u32(std::string& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xff);
}

std::string chunk(const std::string& type, const std::string& body) {
  std::string out;
  append_u32(out, static_cast<uint32_t>(body.size()));
  const std::string checked = type + body;
  const uLong crc =
      ::crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size()));
  out += checked;
  append_u32(out, static_cast<uint32_t>(crc));
  return out;
}

bool is_ascii(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c == '\n' || (c >= 0x20 && c < 0x7f); });
}

// PNG forbids NUL in texts; keys have 1 to 79 printable characters.
std::string text_chunk(const std::string& key, const std::string& value) {
  const bool good = !key.empty() && key.size() <= 79 && is_ascii(key) && key.front() != ' ' &&
                    key.back() != ' ' && key.find('\n') == std::string::npos;
  require(good, ErrorCode::usage,
          "the key '{}' cannot stand in a PNG; expected 1 to 79 printable ASCII characters", key);
  require(value.size() < (size_t{1} << 30), ErrorCode::usage,
          "the text of '{}' is too long for a PNG", key);
  std::string body = base::valid_utf8(value);
  std::replace(body.begin(), body.end(), '\0', ' ');
  if (is_ascii(body)) return chunk("tEXt", key + '\0' + body);
  return chunk("iTXt",
               key + std::string(5, '\0') + body);  // no compression, language or translation
}

// Owns libpng's structures of an image.
struct PngImage {
  png_image image{};
  PngImage() { image.version = PNG_IMAGE_VERSION; }
  ~PngImage() { png_image_free(&image); }
  PngImage(const PngImage&) = delete;
  PngImage& operator=(const PngImage&) = delete;
};

// Output of libpng; writing fails after the thread was asked to stop.
struct PngBytes {
  std::string bytes;
  std::FILE* file = nullptr;

  PngBytes() {
    const cookie_io_functions_t calls{nullptr, append, nullptr, nullptr};
    file = fopencookie(this, "w", calls);
    require(file != nullptr, ErrorCode::memory, "there is no memory for a PNG image");
  }
  ~PngBytes() {
    if (file) std::fclose(file);
  }
  PngBytes(const PngBytes&) = delete;
  PngBytes& operator=(const PngBytes&) = delete;
  bool close() { return std::fclose(std::exchange(file, nullptr)) == 0; }

  static ssize_t append(void* self, const char* data, size_t size) {
    if (base::current_stop().stop_requested()) return 0;
    try {
      static_cast<PngBytes*>(self)->bytes.append(data, size);
    } catch (...) {  // exceptions must not pass through C
      return 0;
    }
    return static_cast<ssize_t>(size);
  }
};

}  // namespace

Image to_image(const tensor::Tensor& x) {
  const bool fits = x.rank() == 3 && x.size(0) == 3 && is_float(x.dtype()) && x.size(1) > 0 &&
                    x.size(2) > 0 && x.size(1) < (1 << 20) && x.size(2) < (1 << 20);
  require(fits, ErrorCode::usage, "an image of shape {} ({}) was given; expected floats [3, H, W]",
          x.shape().str(), name_of(x.dtype()));
  const std::vector<float> values = x.to_floats();
  Image image{static_cast<int>(x.size(2)), static_cast<int>(x.size(1)), {}};
  const size_t pixels = values.size() / 3;
  image.rgb.resize(values.size());
  for (size_t c = 0; c < 3; ++c)
    for (size_t i = 0; i < pixels; ++i) {
      const float level = std::nearbyint(values[c * pixels + i] * 255.0f);
      image.rgb[i * 3 + c] = level >= 255 ? 255 : level > 0 ? static_cast<uint8_t>(level) : 0;
    }
  return image;
}

std::string encode_png(const Image& image, const std::map<std::string, std::string>& text) {
  const bool whole = image.width > 0 && image.height > 0 &&
                     image.rgb.size() == size_t(image.width) * size_t(image.height) * 3;
  require(whole, ErrorCode::usage, "an image of {} x {} with {} bytes cannot be written as PNG",
          image.width, image.height, image.rgb.size());
  PngImage png;
  png.image.width = static_cast<png_uint_32>(image.width);
  png.image.height = static_cast<png_uint_32>(image.height);
  png.image.format = PNG_FORMAT_RGB;
  PngBytes out;
  const bool done =
      png_image_write_to_stdio(&png.image, out.file, 0, image.rgb.data(), 0, nullptr) != 0 &&
      out.close();
  base::check_stop();
  require(done, ErrorCode::usage, "an image of {} x {} cannot be written as PNG: {}", image.width,
          image.height, png.image.message);
  std::string chunks;
  for (const auto& [key, value] : text) chunks += text_chunk(key, value);
  return out.bytes.insert(kAfterHeader, chunks);
}

void write_png(const std::string& path, const Image& image,
               const std::map<std::string, std::string>& text) {
  const std::string bytes = encode_png(image, text);
  base::OutputFile out(path);
  out.write(bytes.data(), bytes.size());
  out.commit();
}

Image decode_png(const std::string& bytes, const std::string& name) {
  PngImage png;
  require(png_image_begin_read_from_memory(&png.image, bytes.data(), bytes.size()) != 0,
          ErrorCode::usage, "'{}' is no PNG image that can be read: {}", name, png.image.message);
  require(uint64_t{png.image.width} * png.image.height <= uint64_t{1} << 28, ErrorCode::usage,
          "'{}' has {} x {} pixels; expected at most 2^28", name, png.image.width,
          png.image.height);
  png.image.format = PNG_FORMAT_RGB;
  Image image{static_cast<int>(png.image.width), static_cast<int>(png.image.height), {}};
  image.rgb.resize(PNG_IMAGE_SIZE(png.image));
  const png_color black{0, 0, 0};
  require(png_image_finish_read(&png.image, &black, image.rgb.data(), 0, nullptr) != 0,
          ErrorCode::usage, "'{}' is a damaged PNG image: {}", name, png.image.message);
  return image;
}

Image read_png(const std::string& path) {
  return decode_png(base::read_file(path, int64_t{1} << 30), path);
}

}  // namespace tessera::media
