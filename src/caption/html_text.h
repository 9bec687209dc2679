#pragma once

#include <string>
#include <string_view>

namespace tessera::caption {

/// Extracts the text from HTML like BeautifulSoup with Python's html.parser (3.11): without tags,
/// comments, declarations and the contents of script, style, template, rt and rp; references become
/// characters. Plain text is unchanged. Input is valid lower-case UTF-8. Constructs refused by the
/// reference, an unknown "<![section", are kept as text.
std::string html_text(std::string_view text);

/// Replaces character references, as html.unescape of Python does.
std::string html_unescaped(std::string_view text);

/// Value of a numeric character reference from 0x80 to 0x9f: the character of Windows-1252, or the
/// control character.
char32_t windows_1252(char32_t control);

}  // namespace tessera::caption
