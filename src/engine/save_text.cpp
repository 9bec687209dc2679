#include "base/output_file.h"
#include "tessera/engine.h"

namespace tessera {

void save_text(const std::string& text, const std::string& path) {
  base::OutputFile out(path);
  out.write(text.data(), text.size());
  out.commit();
}

void check_writable(const std::string& path) { base::check_writable(path); }
void check_writable(std::span<const std::string> paths) { base::check_writable(paths); }

}  // namespace tessera
