#pragma once

#include <string>
#include <string_view>

namespace tessera::caption {

/// A prompt in small letters without blanks at its ends, as str.lower().strip() of Python.
std::string plain_caption(std::string_view prompt);

/// A prompt as the cleaner of diffusers leaves it (clean_caption of PixArt's pipelines).
struct CleanCaption {
  std::string text;
  /// A part of it looks like UTF-8 that was read in another encoding ("â€¦"), which ftfy may mend;
  /// here it stays as it is.
  bool misread = false;
};
/// Twice what `_clean_caption` does: escapes, addresses, HTML, CJK, dashes, quotes, numbers, names
/// of files and the words of shops go or become plain, then what ftfy does but for its repair of
/// encodings (named references, ligatures, widths, quotes, line ends, control characters, NFC).
/// Throws Error(usage) for a prompt that is too long to be one.
CleanCaption clean_caption(std::string_view prompt);

}  // namespace tessera::caption
