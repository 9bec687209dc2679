#pragma once

#include <span>
#include <string_view>

namespace tessera::server {

/// A file of the web page, embedded from apps/server/page at build time.
struct PageFile {
  std::string_view name;     ///< "index.html", "style.css", ...: no folders
  std::string_view type;     ///< media type, "text/css; charset=utf-8"
  std::string_view tag;      ///< quoted ETag of the content
  std::string_view content;  ///< UTF-8
};

/// All files, sorted by name.
std::span<const PageFile> page_files();

/// The file of a name, or null. "index.html" is served at "/", the others at "/assets/NAME".
const PageFile* find_page_file(std::string_view name);

/// Content-Security-Policy of the page: only the server's own code and data. Images and videos may
/// also be data: (previews) or blob: (fetched with a key).
inline constexpr std::string_view kPagePolicy =
    "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace tessera::server
