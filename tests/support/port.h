// Ports of this machine.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <utility>

namespace dex::test {

// One that nobody else has, with a socket listening on it as long as this lives when `taken`.
// Tests that run at once begin their search at places of their own, below the ports that the system
// gives to connections.
class Port {
 public:
  explicit Port(bool taken = false) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    const int one = 1;
    setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    static int next = getpid() * 16;
    for (int tries = 0; !number_ && tries < kCount; ++tries) {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_ANY);
      address.sin_port = htons(kFirst + next++ % kCount);
      if (bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
        number_ = ntohs(address.sin_port);
    }
    REQUIRE(number_ > 0);
    if (taken)
      REQUIRE(listen(socket_, 8) == 0);
    else
      close(std::exchange(socket_, -1));
  }
  ~Port() {
    if (socket_ >= 0) close(socket_);
  }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;
  int number() const { return number_; }

 private:
  static constexpr int kFirst = 10000, kCount = 22000;
  int socket_, number_ = 0;
};

}  // namespace dex::test
