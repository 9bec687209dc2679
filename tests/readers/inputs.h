#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tessera::readers {

/// A reader of what others write, with the input that takes it longest.
struct Reader {
  std::string name;
  /// Makes an input of some `bytes`; the function reads it, and may refuse it by tessera::Error.
  std::function<std::function<void()>(size_t bytes)> prepare;
  size_t most = size_t{1} << 40;  ///< bytes that the reader takes at all
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
