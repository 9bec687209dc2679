#include "block_view.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace tessera::cli {
namespace {

constexpr const char* kMask = "\u2591";  // unlikely to occur in a vocabulary
constexpr const char* kNewline = "\u21b5";
constexpr size_t kRepeats = 3;  // maximum repeats shown in a row

int terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string on_one_line(const std::string& text) {
  std::string line;
  for (char c : text)
    if (c == '\n')
      line += kNewline;
    else
      line += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  return line;
}

// Spells the tokens of a block: masks as glyphs, long repeats as a count.
std::string spelled(const std::vector<std::string>& block) {
  std::string line;
  for (size_t i = 0; i < block.size();) {
    size_t end = i + 1;
    while (end < block.size() && block[end] == block[i]) ++end;
    const std::string word = block[i].empty() ? kMask : on_one_line(block[i]);
    const bool is_repeated = end - i > kRepeats && word.size() > 2 && !block[i].empty();
    for (size_t n = is_repeated ? 1 : end - i; n > 0; --n) line += word;
    if (is_repeated) line += " x" + std::to_string(end - i) + " ";
    i = end;
  }
  return line;
}

// Leading UTF-8 characters that fit.
std::string cut(const std::string& text, size_t columns) {
  size_t at = 0;
  for (size_t count = 0; at < text.size(); ++at)
    if ((text[at] & 0xc0) != 0x80 && count++ == columns) break;
  return text.substr(0, at);
}

}  // namespace

BlockView::BlockView(size_t prompts) : many_(prompts > 1), width_(terminal_width()) {
  const char* term = std::getenv("TERM");
  live_ = !many_ && isatty(STDERR_FILENO) && term && std::string(term) != "dumb";
}

void BlockView::write(int prompt, const Line& line) const {
  const std::string before = (many_ ? "[" + std::to_string(prompt) + "] " : "") + "tokens from " +
                             std::to_string(line.from) + ", pass " + std::to_string(line.passes) +
                             ": ";
  if (!live_) {
    std::fprintf(stderr, "%s%s\n", before.c_str(), line.text.c_str());
    return;
  }
  const std::string whole = before + line.text;
  std::fprintf(stderr, "\r\033[K%s", cut(whole, static_cast<size_t>(width_ - 1)).c_str());
}

void BlockView::show(const CompleteProgress& p) {
  Line& line = open_[p.prompt];
  const bool next = !p.block.empty() && p.from != line.from;
  if (line.passes > 0 && (next || p.ended)) {
    if (live_)
      std::fputs("\n", stderr);
    else
      write(p.prompt, line);
    line = {};
  }
  if (p.block.empty()) return;
  line.from = p.from;
  ++line.passes;
  line.text = spelled(p.block);
  if (live_) write(p.prompt, line);
}

}  // namespace tessera::cli
