#include "media/webp.h"

#include <webp/encode.h>
#include <webp/mux.h>

#include <memory>

#include "base/fail.h"
#include "base/output_file.h"
#include "base/stop.h"
#include "base/utf8.h"
#include "media/exif.h"

namespace tessera::media {
namespace {

constexpr int kLongestSide = WEBP_MAX_DIMENSION;

struct MuxDelete {
  void operator()(WebPMux* mux) const { WebPMuxDelete(mux); }
};

// Like WebPEncodeLosslessRGB, but stops with the thread's work.
class Encoder {
 public:
  Encoder() { WebPMemoryWriterInit(&writer_); }
  ~Encoder() {
    WebPPictureFree(&picture_);
    WebPMemoryWriterClear(&writer_);
  }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  /// Returns an empty text after a failure or a stop.
  std::string encode(const Image& image) {
    WebPConfig config;
    if (!WebPConfigPreset(&config, WEBP_PRESET_DEFAULT, kEffort) || !WebPPictureInit(&picture_))
      return {};
    config.lossless = 1;
    picture_.use_argb = 1;
    picture_.width = image.width;
    picture_.height = image.height;
    picture_.writer = WebPMemoryWrite;
    picture_.custom_ptr = &writer_;
    picture_.progress_hook = [](int, const WebPPicture*) {
      return base::current_stop().stop_requested() ? 0 : 1;
    };
    if (!WebPPictureImportRGB(&picture_, image.rgb.data(), 3 * image.width) ||
        !WebPEncode(&config, &picture_))
      return {};
    return {reinterpret_cast<const char*>(writer_.mem), writer_.size};
  }

 private:
  static constexpr float kEffort = 70;  // same as WebPEncodeLosslessRGB
  WebPPicture picture_{};
  WebPMemoryWriter writer_{};
};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : base::valid_utf8(text)) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (static_cast<unsigned char>(c) >= 0x20 || c == '\n')
      out += c;
  }
  return out;
}

std::string description(const std::map<std::string, std::string>& text) {
  std::string lines;
  for (const auto& [key, value] : text) lines += escaped(fmt::format("{}: {}\n", key, value));
  std::string xmp =
      "<x:xmpmeta xmlns:x=\"adobe:ns:meta/\"><rdf:RDF "
      "xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\"><rdf:Description rdf:about=\"\" "
      "xmlns:dc=\"http://purl.org/dc/elements/1.1/\"><dc:description><rdf:Alt><rdf:li "
      "xml:lang=\"x-default\">";
  xmp += lines;
  xmp += "</rdf:li></rdf:Alt></dc:description></rdf:Description></rdf:RDF></x:xmpmeta>";
  return xmp;
}

std::string with_text(const std::string& bytes, const std::map<std::string, std::string>& text) {
  const WebPData whole{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  const std::unique_ptr<WebPMux, MuxDelete> mux(WebPMuxCreate(&whole, 0));
  const std::string xmp = description(text);
  const WebPData chunk{reinterpret_cast<const uint8_t*>(xmp.data()), xmp.size()};
  WebPData file{};
  const std::string exif = exif_data(text);
  const WebPData comment{reinterpret_cast<const uint8_t*>(exif.data()), exif.size()};
  const bool done =
      mux && WebPMuxSetChunk(mux.get(), "XMP ", &chunk, 0) == WEBP_MUX_OK &&
      (exif.empty() || WebPMuxSetChunk(mux.get(), "EXIF", &comment, 0) == WEBP_MUX_OK) &&
      WebPMuxAssemble(mux.get(), &file) == WEBP_MUX_OK;
  require(done, ErrorCode::usage, "a text of {} bytes cannot be put into a WebP file", xmp.size());
  std::string out(reinterpret_cast<const char*>(file.bytes), file.size);
  WebPDataClear(&file);
  return out;
}

}  // namespace

std::string encode_webp(const Image& image, const std::map<std::string, std::string>& text) {
  const bool fits = image.width > 0 && image.height > 0 && image.width <= kLongestSide &&
                    image.height <= kLongestSide &&
                    image.rgb.size() == size_t(image.width) * size_t(image.height) * 3;
  require(fits, ErrorCode::usage,
          "an image of {} x {} with {} bytes cannot be written as WebP; expected sides of 1 to {}",
          image.width, image.height, image.rgb.size(), kLongestSide);
  const std::string bytes = Encoder().encode(image);
  base::check_stop();
  require(!bytes.empty(), ErrorCode::usage, "an image of {} x {} cannot be written as WebP",
          image.width, image.height);
  return text.empty() ? bytes : with_text(bytes, text);
}

void write_webp(const std::string& path, const Image& image,
                const std::map<std::string, std::string>& text) {
  const std::string bytes = encode_webp(image, text);
  base::OutputFile out(path);
  out.write(bytes.data(), bytes.size());
  out.commit();
}

}  // namespace tessera::media
