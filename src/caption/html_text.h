#pragma once

#include <string>
#include <string_view>

namespace tessera::caption {

/// The text of a piece of HTML as BeautifulSoup gives it over Python's html.parser (3.11): without
/// tags, comments, declarations and the contents of script, style, template, rt and rp; references
/// are characters. Text that is no HTML comes out as it is. Valid UTF-8 in small letters. What
/// these two refuse, an unknown "<![section", is kept as text.
std::string html_text(std::string_view text);

/// The text with its character references replaced, as html.unescape of Python does.
std::string html_unescaped(std::string_view text);

/// What a numeric character reference to a control character from 0x80 to 0x9f stands for: the
/// character of Windows-1252, or itself.
char32_t windows_1252(char32_t control);

}  // namespace tessera::caption
