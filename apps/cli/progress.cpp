#include "progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "server/option_names.h"
#include "tessera/words.h"

namespace tessera::cli {

struct ProgressView::State {
  bool bar = false, plain = false, line_open = false;
  std::optional<Phase> phase;
};

namespace {

int terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string clock_of(double seconds) {
  char text[32];
  const int whole = static_cast<int>(std::lround(seconds));
  if (whole < 60)
    std::snprintf(text, sizeof text, "%ds", whole);
  else
    std::snprintf(text, sizeof text, "%dm%02ds", whole / 60, whole % 60);
  return text;
}

std::string bar_line(const Progress& p) {
  char text[160];
  const int done = std::max(p.step, 0);
  const char* const phase = word_of(p.phase);
  if (p.steps <= 0) return phase;
  const double step_seconds = done > 0 ? p.seconds / done : 0;
  if (done == 0)
    std::snprintf(text, sizeof text, "%-8s 0/%d", phase, p.steps);
  else
    std::snprintf(text, sizeof text, "%-8s %d/%d  %.3f s/step  %s %s", phase, done, p.steps,
                  step_seconds,
                  clock_of(done < p.steps ? step_seconds * (p.steps - done) : p.seconds).c_str(),
                  done < p.steps ? "left" : "in all");
  const int room = terminal_width() - static_cast<int>(std::string(text).size()) - 4;
  if (room < 8) return text;
  const int cells = std::min(room, 30), filled = cells * done / p.steps;
  return std::string(text) + "  " + std::string(static_cast<size_t>(filled), '#') +
         std::string(static_cast<size_t>(cells - filled), '.');
}

}  // namespace

ProgressView::ProgressView(const std::string& mode) : state_(std::make_unique<State>()) {
  const char* term = std::getenv("TERM");
  const bool dumb = !term || std::string(term) == "dumb";
  state_->bar = mode == "auto" && isatty(STDERR_FILENO) && !dumb;
  state_->plain = mode == "plain" || (mode == "auto" && !state_->bar);
}

void print_note(const std::string& sentence) {
  std::fprintf(stderr, "note: %s\n", server::in_options(sentence).c_str());
}

ProgressView::~ProgressView() { end_line(); }

void ProgressView::end_line() {
  if (std::exchange(state_->line_open, false)) std::fputs("\n", stderr);
}

void ProgressView::note(const std::string& sentence) {
  if (!state_->bar && !state_->plain) return;
  end_line();
  print_note(sentence);
}

void ProgressView::show(const Progress& p) {
  if (state_->bar) {
    if (state_->line_open && state_->phase != p.phase) std::fputs("\n", stderr);
    std::string line = bar_line(p);
    line.resize(
        std::min<size_t>(line.size(), static_cast<size_t>(std::max(terminal_width() - 1, 1))));
    std::fprintf(stderr, "\r\033[K%s", line.c_str());
    state_->line_open = true;
  } else if (state_->plain) {
    const int quarter = std::max(p.steps / 4, 1);
    const bool worth = state_->phase != p.phase || p.step == p.steps || p.step % quarter == 0;
    if (worth && p.steps > 0)
      std::fprintf(stderr, "%s %d/%d %.2fs\n", word_of(p.phase), p.step, p.steps, p.seconds);
    else if (worth)
      std::fprintf(stderr, "%s\n", word_of(p.phase));
  }
  state_->phase = p.phase;
  std::fflush(stderr);
}

}  // namespace tessera::cli
