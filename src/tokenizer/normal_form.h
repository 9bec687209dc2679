#pragma once

#include <string>
#include <string_view>

namespace tessera::tokenizer {

enum class Form { nfc, nfd, nfkc, nfkd };
/// Valid UTF-8 in a Unicode normalisation form (UAX 15), in linear time: ICU inserts each combining
/// mark by a walk backwards, which takes quadratic time on long runs of them.
std::string normalized(std::string_view text, Form form);

}  // namespace tessera::tokenizer
