#include "page.h"

#include <algorithm>

namespace tessera::server {

const PageFile* find_page_file(std::string_view name) {
  const std::span<const PageFile> files = page_files();
  const auto at = std::ranges::lower_bound(files, name, {}, &PageFile::name);
  return at != files.end() && at->name == name ? &*at : nullptr;
}

}  // namespace tessera::server
