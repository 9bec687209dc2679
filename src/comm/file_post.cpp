#include "comm/file_post.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/fail.h"

namespace tessera::comm {
namespace {

constexpr size_t kHead = sizeof(sa_family_t);
constexpr int kMostLetters = 1024;  // read by a call, whoever sends

// The kernel's name for a socket: a null character and five more.
socklen_t name_of(const FilePost::Address& address, sockaddr_un& name) {
  require(address.size > 0 && address.size <= address.name.size(), ErrorCode::rank,
          "a rank names a socket of {} characters; expected 1 to {}", address.size,
          address.name.size());
  name = {};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, address.name.data(), address.size);
  return static_cast<socklen_t>(kHead + address.size);
}

// Room for a file and the sender.
union Control {
  char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(ucred))];
  cmsghdr alignment;
};

template <class Value>
Value value_of(const cmsghdr* header) {
  Value value{};
  std::memcpy(&value, CMSG_DATA(header), sizeof value);
  return value;
}

}  // namespace

FilePost::FilePost() : socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  socklen_t size = sizeof name;
  const int on = 1;
  // The empty name asks the kernel for a free one.
  const bool open = socket_ >= 0 &&
                    setsockopt(socket_, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0 &&
                    bind(socket_, reinterpret_cast<const sockaddr*>(&name), kHead) == 0 &&
                    getsockname(socket_, reinterpret_cast<sockaddr*>(&name), &size) == 0;
  require(open && size > kHead && size - kHead <= address_.name.size(), ErrorCode::rank,
          "no socket for files of other ranks: {}", std::strerror(errno));
  address_.size = static_cast<uint8_t>(size - kHead);
  std::memcpy(address_.name.data(), name.sun_path, address_.size);
}

void FilePost::send(const Address& to, int file, uint32_t number) const {
  sockaddr_un name;
  Control control{};
  iovec data{&number, sizeof number};
  msghdr message{};
  message.msg_namelen = name_of(to, name);
  message.msg_name = &name;
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = CMSG_SPACE(sizeof file);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof file);
  std::memcpy(CMSG_DATA(header), &file, sizeof file);
  require(sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof number, ErrorCode::rank,
          "a file cannot go to another rank of this host: {}", std::strerror(errno));
}

// False: no more letters are here.
bool FilePost::receive(Letter& letter) const {
  Control control{};
  uint32_t number = 0;
  iovec data{&number, sizeof number};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  const ssize_t bytes = recvmsg(socket_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (bytes < 0) return false;
  letter = {};
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET) continue;
    if (h->cmsg_type == SCM_CREDENTIALS && h->cmsg_len == CMSG_LEN(sizeof(ucred)))
      if (const auto sender = value_of<ucred>(h); sender.uid == geteuid())
        letter.process = sender.pid;
    if (h->cmsg_type == SCM_RIGHTS && h->cmsg_len == CMSG_LEN(sizeof(int)))
      letter.file = base::Descriptor(value_of<int>(h));
  }
  if (bytes != sizeof number) letter.process = 0;  // a sender of other things
  letter.number = number;
  return true;
}

base::Descriptor FilePost::take(int64_t process, uint32_t number) {
  Letter letter;
  for (int count = 0; count < kMostLetters && receive(letter); ++count)
    if (letter.process > 0 && letter.file >= 0 && std::ssize(letters_) < kMostLetters)
      letters_.push_back(std::move(letter));
  const auto it = std::find_if(letters_.begin(), letters_.end(), [&](const Letter& one) {
    return one.process == process && one.number == number;
  });
  require(it != letters_.end(), ErrorCode::rank, "process {} of this host sent no file", process);
  base::Descriptor file = std::move(it->file);
  letters_.erase(it);
  return file;
}

}  // namespace tessera::comm
