#pragma once

#include <string>
#include <string_view>

namespace tessera::tokenizer {

enum class Form { nfc, nfd, nfkc, nfkd };
/// Converts valid UTF-8 to a Unicode normalisation form (UAX 15), in linear time: ICU inserts each
/// combining mark by a backward scan, with quadratic time on long runs.
std::string normalized(std::string_view text, Form form);

}  // namespace tessera::tokenizer
