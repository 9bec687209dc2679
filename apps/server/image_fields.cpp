#include "server/image_fields.h"

#include "server/field_names.h"
#include "server/refusal.h"
#include "tessera/encodings.h"

namespace tessera::server {
namespace {

InputImage decoded(const std::string& text, const std::string& name) {
  InputImage image;
  try {
    image.bytes = from_base64(text);
  } catch (const Error&) {
    throw wrong(name, name + ": expected the bytes of a PNG, JPEG or WebP file in base64");
  }
  if (image.bytes.empty()) throw wrong(name, name + ": the image is empty");
  return image;
}

std::string size_text(size_t characters) { return std::to_string(characters / 4 * 3) + " bytes"; }

}  // namespace

void read_image_fields(Fields& fields, GenerateRequest& q) {
  std::vector<std::string> images;
  fields.texts("image", images);
  if (images.size() > kMostImages)
    throw wrong("image", "image: " + std::to_string(images.size()) + " images; a request has " +
                             std::to_string(kMostImages) + " at most");
  for (const std::string& text : images) q.images.push_back(decoded(text, "image"));
  std::string text;
  if (fields.text("mask", text)) q.mask = decoded(text, "mask");
  try {
    if (fields.text("outpaint", text)) q.outpaint = parse_margins(text);
  } catch (const Error& e) {
    const std::string message = in_fields(e.what());
    throw wrong(field_blamed(e.what()), message);
  }
}

Json without_images(Json request) {
  if (!request.is_object()) return request;
  for (const char* name : {"image", "mask"}) {
    const auto it = request.find(name);
    if (it == request.end()) continue;
    if (it->is_string()) *it = size_text(it->get_ref<const std::string&>().size());
    if (it->is_array())
      for (Json& item : *it)
        if (item.is_string()) item = size_text(item.get_ref<const std::string&>().size());
  }
  return request;
}

bool has_alpha(std::string_view file) {
  const auto byte = [&](size_t at) {
    return at < file.size() ? static_cast<unsigned char>(file[at]) : 0;
  };
  if (file.starts_with("\x89PNG")) return byte(25) == 4 || byte(25) == 6;
  if (!file.starts_with("RIFF") || file.size() < 30 || file.substr(8, 4) != "WEBP") return false;
  if (file.substr(12, 4) == "VP8X") return (byte(20) & 0x10) != 0;
  return file.substr(12, 4) == "VP8L" && (byte(24) & 0x10) != 0;
}

}  // namespace tessera::server
