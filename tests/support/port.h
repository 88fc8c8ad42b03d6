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
class Port {
 public:
  explicit Port(bool taken = false) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t size = sizeof address;
    const int one = 1;
    setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    REQUIRE(bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    number_ = ntohs(address.sin_port);
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
  int socket_, number_ = 0;
};

}  // namespace dex::test
