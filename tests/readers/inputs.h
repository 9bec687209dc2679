#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tessera::readers {

/// A reader of untrusted data, with its slowest input.
struct Reader {
  std::string name;
  /// Makes an input of about `bytes`; the returned function reads the input, and may throw
  /// tessera::Error.
  std::function<std::function<void()>(size_t bytes)> prepare;
  size_t most = size_t{1} << 40;  ///< limit of the reader in bytes
};

std::vector<Reader> text_readers();
std::vector<Reader> template_readers();
std::vector<Reader> file_readers();

/// `part` again and again, up to some `bytes`.
inline std::string repeated(const std::string& part, size_t bytes) {
  std::string text;
  text.reserve(bytes + part.size());
  while (text.size() < bytes) text += part;
  return text;
}

}  // namespace tessera::readers
