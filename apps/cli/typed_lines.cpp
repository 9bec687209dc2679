#include "typed_lines.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "commands.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

constexpr size_t kMost = size_t{16} << 20;
constexpr int kEnd = -1, kEscape = 0x1b, kSuspend = 'Z' & 0x1f;

void show(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  flush_results();
}

/// Puts the terminal into raw mode with bracketed paste; Ctrl-C remains a signal.
class Keys {
  static constexpr const char* kPlain = "\x1b[?2004l";

 public:
  Keys() {
    tcgetattr(STDIN_FILENO, &before_);
    enter();
  }
  ~Keys() {
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
    std::fputs(kPlain, stdout);  // errors of a closed terminal are ignored
    std::fflush(stdout);
  }
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;
  void enter() {
    termios keys = before_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | IEXTEN);
    keys.c_cc[VSUSP] = _POSIX_VDISABLE;  // the line is drawn again after a suspension
    keys.c_cc[VMIN] = 1;
    keys.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &keys);
    show("\x1b[?2004h");
  }
  void leave() {
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
    show(kPlain);
  }

 private:
  termios before_{};
};

size_t columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Bytes of the character at `at`, at most four.
size_t length_at(const std::string& text, size_t at) {
  size_t end = at + 1;
  while (end < text.size() && end - at < 4 && (text[end] & 0xc0) == 0x80) ++end;
  return end - at;
}

uint32_t code_at(const std::string& text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const size_t length = length_at(text, at);
  uint32_t code = length == 1 ? first : first & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i)
    code = code << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3fu);
  return code;
}

// Columns of a character on terminals: 2 for East Asian characters and emoji, 0 for combining
// marks.
size_t width_of(uint32_t code) {
  constexpr std::pair<uint32_t, uint32_t> kNone[] = {
      {0x300, 0x36f}, {0x200b, 0x200f}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}};
  constexpr std::pair<uint32_t, uint32_t> kWide[] = {
      {0x1100, 0x115f}, {0x2e80, 0xa4cf}, {0xac00, 0xd7a3},   {0xf900, 0xfaff},  {0xfe30, 0xfe6f},
      {0xff00, 0xff60}, {0xffe0, 0xffe6}, {0x1f300, 0x1faff}, {0x20000, 0x3fffd}};
  const auto holds = [code](const auto& range) {
    return code >= range.first && code <= range.second;
  };
  if (std::any_of(std::begin(kNone), std::end(kNone), holds)) return 0;
  return std::any_of(std::begin(kWide), std::end(kWide), holds) ? 2 : 1;
}

// Number of rows below the first row of a text on a terminal.
size_t rows_of(const std::string& text, size_t width) {
  size_t row = 0, column = 0;
  for (size_t at = 0; at < text.size(); at += length_at(text, at)) {
    const bool breaks = text[at] == '\n';
    if (text[at] == '\t') {  // to the next tab stop in the same row
      column = std::min((column / 8 + 1) * 8, width - 1);
      continue;
    }
    const size_t wide = width_of(code_at(text, at));
    if (breaks || column + wide > width) ++row, column = 0;
    if (!breaks) column += wide;
  }
  return row;
}

}  // namespace

TypedLines::TypedLines(std::string prompt) : prompt_(std::move(prompt)) {
  const char* term = std::getenv("TERM");
  terminal_ = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
  edits_ = terminal_ && term && std::strcmp(term, "dumb") != 0;
}

std::optional<std::string> TypedLines::next(const std::stop_token& stop) {
  if (terminal_) show(prompt_);
  return edits_ ? edited(stop) : plain(stop);
}

std::optional<std::string> TypedLines::next(const std::stop_token& stop,
                                            const std::string& prompt) {
  struct Usual {
    std::string& prompt;
    std::string previous;
    ~Usual() { prompt = previous; }
  } const usual{prompt_, std::exchange(prompt_, prompt)};
  return next(stop);
}

// Reads more input; false at the end. Polls with a short timeout, so that Ctrl-C can interrupt.
bool TypedLines::fill(const std::stop_token& stop) {
  for (;;) {
    if (stop.stop_requested())
      throw Error(ErrorCode::cancelled, "stopped while standard input was read");
    pollfd poll_entry{STDIN_FILENO, POLLIN, 0};
    if (poll(&poll_entry, 1, 50) <= 0) continue;
    char part[65536];
    const ssize_t count = read(STDIN_FILENO, part, sizeof part);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) return false;  // a closed terminal may report an error
    waiting_.append(part, static_cast<size_t>(count));
    if (waiting_.size() + line_.size() > kMost)
      throw Error(ErrorCode::usage, "a line of more than 16 MB, which no model reads");
    return true;
  }
}

std::optional<std::string> TypedLines::plain(const std::stop_token& stop) {
  size_t end = waiting_.find('\n'), offset = 0;
  for (bool more = true; end == std::string::npos; end = waiting_.find('\n', offset)) {
    offset = waiting_.size();
    more = fill(stop);
    if (!more && waiting_.empty()) return {};
    if (!more) waiting_ += '\n';
  }
  std::string line = waiting_.substr(0, end);
  waiting_.erase(0, end + 1);
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

int TypedLines::byte(const std::stop_token& stop) {
  if (waiting_.empty() && !fill(stop)) return kEnd;
  const auto first = static_cast<unsigned char>(waiting_.front());
  waiting_.erase(0, 1);
  return first;
}

std::optional<std::string> TypedLines::edited(const std::stop_token& stop) {
  Keys keys;
  line_.clear();
  for (;;) {
    // Echoes a run of plain characters at once.
    const size_t plain = std::min(
        waiting_.size(), static_cast<size_t>(std::find_if(waiting_.begin(), waiting_.end(),
                                                          [](char c) {
                                                            const auto u =
                                                                static_cast<unsigned char>(c);
                                                            return u < 0x20 || u == 0x7f;
                                                          }) -
                                             waiting_.begin()));
    if (plain > 0) {
      insert(waiting_.substr(0, plain));
      waiting_.erase(0, plain);
    }
    const int key = byte(stop);
    if (key == kEnd) throw Error(ErrorCode::cancelled, "the terminal has gone");
    if (key == kSuspend && !pasted_) {
      keys.leave();
      std::raise(SIGTSTP);
      keys.enter();
      show("\r\x1b[J" + prompt_ + line_);
      continue;
    }
    const Key action = control(key, stop);
    if (action == Key::none) continue;
    show("\n");
    if (action == Key::end) return {};
    return std::exchange(line_, {});
  }
}

TypedLines::Key TypedLines::control(int byte, const std::stop_token& stop) {
  const auto last_word = [this] {
    size_t at = line_.size();
    while (at > 0 && line_[at - 1] == ' ') --at;
    while (at > 0 && line_[at - 1] != ' ' && line_[at - 1] != '\n') --at;
    return line_.size() - at;
  };
  const auto last_character = [this] {
    size_t at = line_.size();
    while (at > 0) {
      do --at;
      while (at > 0 && (line_[at] & 0xc0) == 0x80);
      if (width_of(code_at(line_, at)) > 0) break;  // a mark goes with its base
    }
    return line_.size() - at;
  };
  switch (byte) {
    case kEscape: escape(stop); return Key::none;
    case '\r':
    case '\n':
      if (!pasted_) return Key::line;
      insert("\n");
      return Key::none;
    case '\t': insert(pasted_ ? "\t" : " "); return Key::none;
    default: break;
  }
  if (pasted_ && (byte < 0x20 || byte == 0x7f)) return Key::none;  // pasted, not typed
  switch (byte) {
    case 0x08:
    case 0x7f: erase(last_character()); return Key::none;
    case 'D' & 0x1f: return line_.empty() ? Key::end : Key::none;
    case 'U' & 0x1f: erase(line_.size()); return Key::none;
    case 'W' & 0x1f: erase(last_word()); return Key::none;
    default: break;
  }
  if (byte >= 0x20) insert(std::string(1, static_cast<char>(byte)));
  return Key::none;
}

// Handles paste markers; ignores other escape sequences (arrow keys).
void TypedLines::escape(const std::stop_token& stop) {
  int next = byte(stop);
  if (next != '[') {
    if (next == 'O') byte(stop);
    return;
  }
  std::string code;
  while ((next = byte(stop)) != kEnd && (next < 0x40 || next > 0x7e))
    code += static_cast<char>(next);
  if (next != '~') return;
  if (code == "200") pasted_ = true;
  if (code == "201") pasted_ = false;
}

void TypedLines::insert(const std::string& bytes) {
  line_ += bytes;
  show(bytes);
}

void TypedLines::erase(size_t bytes) {
  if (bytes == 0) return;
  const size_t before = rows_of(prompt_ + line_, columns());
  line_.resize(line_.size() - bytes);
  redraw(before);
}

// Redraws over the shown text; the cursor is `before` rows below the first row.
void TypedLines::redraw(size_t before) {
  std::string text = "\r";
  if (before > 0) text += "\x1b[" + std::to_string(before) + "A";
  show(text + "\x1b[J" + prompt_ + line_);
}

}  // namespace tessera::cli
