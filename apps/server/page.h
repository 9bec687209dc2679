#pragma once

#include <span>
#include <string_view>

namespace tessera::server {

/// A file of the web page, as it stood in apps/server/page when the program was built.
struct PageFile {
  std::string_view name;     ///< "index.html", "style.css", ...: no folders
  std::string_view type;     ///< its media type, "text/css; charset=utf-8"
  std::string_view tag;      ///< of the content, in the quotes of an ETag header
  std::string_view content;  ///< UTF-8
};

/// All of them, by name.
std::span<const PageFile> page_files();

/// The file of that name, or null. "index.html" is what stands at "/", the others at
/// "/assets/NAME".
const PageFile* find_page_file(std::string_view name);

/// What a browser may do with the page: run and load nothing that is not the server's own. Images
/// may be previews (data:) or were fetched with a key (blob:), and so may videos.
inline constexpr std::string_view kPagePolicy =
    "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace tessera::server
