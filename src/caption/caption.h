#pragma once

#include <string>
#include <string_view>

namespace tessera::caption {

/// Lower-cases and strips a prompt, as str.lower().strip() of Python does.
std::string plain_caption(std::string_view prompt);

/// A prompt cleaned like diffusers' clean_caption in PixArt's pipelines.
struct CleanCaption {
  std::string text;
  /// A part looks like UTF-8 decoded with another encoding ("â€¦"). ftfy may repair this; here the
  /// text stays unchanged.
  bool misread = false;
};
/// Applies `_clean_caption` twice: removes or simplifies escapes, addresses, HTML, CJK, dashes,
/// quotes, numbers, file names and shop words, then applies ftfy's fixes except the repair of
/// encodings (named references, ligatures, widths, quotes, line ends, control characters, NFC).
/// Throws Error(usage) for a prompt that is too long.
CleanCaption clean_caption(std::string_view prompt);

}  // namespace tessera::caption
