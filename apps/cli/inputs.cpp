#include "inputs.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tessera/error.h"

namespace tessera::cli {
namespace {

constexpr size_t kMost = size_t{16} << 20;

// An open file, closed by the destructor unless standard input.
struct Input {
  int file = STDIN_FILENO;
  ~Input() {
    if (file > STDIN_FILENO) close(file);
  }
};

[[noreturn]] void refuse(const std::string& option, const std::string& path,
                         const std::string& reason) {
  const std::string source = path == "-" ? "standard input" : "'" + path + "'";
  throw Error(ErrorCode::usage, option + ": " + source + " " + reason);
}

// Polls with a short timeout, so that Ctrl-C can interrupt a wait for typed input.
void await(int file, const std::stop_token& stop) {
  for (;;) {
    if (stop.stop_requested())
      throw Error(ErrorCode::cancelled, "stopped while standard input was read");
    pollfd poll_entry{file, POLLIN, 0};
    if (poll(&poll_entry, 1, 50) > 0) return;
  }
}

}  // namespace

std::string read_input(const std::string& path, const std::string& option,
                       const std::stop_token& stop) {
  Input input;
  const char* processes = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (path == "-" && processes && std::string(processes) != "1")
    refuse(option, path, "reaches one of mpirun's processes only: name a file that all can read");
  if (path != "-") {
    // Without O_NONBLOCK, opening a FIFO would block before the check can refuse the file.
    input.file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (input.file < 0)
      refuse(option, path, std::string("cannot be read: ") + std::strerror(errno));
    struct stat info {};
    if (fstat(input.file, &info) != 0 || !S_ISREG(info.st_mode))
      refuse(option, path, "is no regular file; give one, or '-' for standard input");
  }
  std::string text;
  char part[65536];
  for (;;) {
    await(input.file, stop);
    const ssize_t count = read(input.file, part, sizeof part);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) refuse(option, path, std::string("cannot be read: ") + std::strerror(errno));
    if (count == 0) return text.starts_with("\xef\xbb\xbf") ? text.substr(3) : text;
    text.append(part, static_cast<size_t>(count));
    if (text.size() > kMost) refuse(option, path, "holds more than 16 MB, which no model reads");
  }
}

std::string read_text(const std::string& typed, const std::string& option,
                      const std::stop_token& stop) {
  if (typed != "-") return typed;
  std::string text = read_input("-", option, stop);
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

std::vector<std::string> read_lines(const std::string& path, const std::string& option,
                                    const std::stop_token& stop) {
  const std::string text = read_input(path, option, stop);
  std::vector<std::string> lines;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    std::string line = text.substr(from, end - from);
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(line);
    from = end + 1;
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  if (lines.empty()) refuse(option, path, "holds no line");
  const auto none = std::ranges::find(lines, "");
  if (none != lines.end())  // skipping a line would shift the numbers of later results
    refuse(option, path,
           "has nothing in line " + std::to_string(none - lines.begin() + 1) +
               "; each line is a prompt: write one there, or take the line out");
  return lines;
}

}  // namespace tessera::cli
