#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/descriptor.h"

namespace tessera::comm {

/// Hands open files to other processes of the host, by a socket without a file name (SCM_RIGHTS). A
/// file is there as soon as send() has returned, so nothing waits: the receiver looks after a
/// message of the sender.
class FilePost {
 public:
  /// For messages between ranks.
  struct Address {
    std::array<char, 15> name{};
    uint8_t size = 0;
  };
  /// Throws Error(rank) if the system refuses, as the other functions do.
  FilePost();
  const Address& address() const { return address_; }
  /// `number`: the sender's, to tell its files apart.
  void send(const Address& to, int file, uint32_t number) const;
  /// The file of a process with this number. Files of other users are closed, those of other
  /// processes of this user stay for later calls. Throws Error(rank) if it has not come.
  base::Descriptor take(int64_t process, uint32_t number);

 private:
  struct Letter {
    int64_t process = 0;
    uint32_t number = 0;
    base::Descriptor file;
  };
  bool receive(Letter& letter) const;

  base::Descriptor socket_;
  Address address_;
  std::vector<Letter> letters_;
};

}  // namespace tessera::comm
