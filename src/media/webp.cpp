#include "media/webp.h"

#include <webp/encode.h>
#include <webp/mux.h>

#include <memory>

#include "base/fail.h"
#include "base/output_file.h"
#include "base/utf8.h"
#include "media/exif.h"

namespace tessera::media {
namespace {

constexpr int kLongestSide = WEBP_MAX_DIMENSION;

struct MuxDelete {
  void operator()(WebPMux* mux) const { WebPMuxDelete(mux); }
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
  WebPData made{};
  const auto parameters = text.find("parameters");
  const std::string exif = parameters == text.end() ? "" : exif_comment(parameters->second);
  const WebPData comment{reinterpret_cast<const uint8_t*>(exif.data()), exif.size()};
  const bool done =
      mux && WebPMuxSetChunk(mux.get(), "XMP ", &chunk, 0) == WEBP_MUX_OK &&
      (exif.empty() || WebPMuxSetChunk(mux.get(), "EXIF", &comment, 0) == WEBP_MUX_OK) &&
      WebPMuxAssemble(mux.get(), &made) == WEBP_MUX_OK;
  require(done, ErrorCode::usage, "a text of {} bytes cannot be put into a WebP file", xmp.size());
  std::string out(reinterpret_cast<const char*>(made.bytes), made.size);
  WebPDataClear(&made);
  return out;
}

}  // namespace

std::string encode_webp(const Image& image, const std::map<std::string, std::string>& text) {
  const bool fits = image.width > 0 && image.height > 0 && image.width <= kLongestSide &&
                    image.height <= kLongestSide &&
                    image.rgb.size() == size_t(image.width) * size_t(image.height) * 3;
  require(fits, ErrorCode::usage,
          "a picture of {} x {} with {} bytes cannot be written as WebP; expected sides of 1 to {}",
          image.width, image.height, image.rgb.size(), kLongestSide);
  uint8_t* encoded = nullptr;
  const size_t size =
      WebPEncodeLosslessRGB(image.rgb.data(), image.width, image.height, 3 * image.width, &encoded);
  require(size > 0, ErrorCode::usage, "a picture of {} x {} cannot be written as WebP", image.width,
          image.height);
  const std::string bytes(reinterpret_cast<const char*>(encoded), size);
  WebPFree(encoded);
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
