// Two networks of their own, a cable between them: what lets a test part two processes. Needs root
// and iproute2.
#pragma once
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

namespace dex::test {

class NetworkPair {
 public:
  // Prints "SKIPPED: ..." where the system refuses; then it is false.
  NetworkPair() {
    made_ = ip("netns add " + name(0)) && ip("netns add " + name(1)) &&
            ip("link add " + cable(0) + " netns " + name(0) + " type veth peer name " + cable(1) +
               " netns " + name(1));
    for (int side = 0; side < 2; ++side)
      made_ = made_ &&
              ip("-n " + name(side) + " addr add " + address(side) + "/24 dev " + cable(side)) &&
              ip("-n " + name(side) + " link set lo up") &&
              ip("-n " + name(side) + " link set " + cable(side) + " up");
    if (!made_)
      std::cout << "SKIPPED: no networks of our own can be made here (root and iproute2)\n";
  }
  ~NetworkPair() {
    for (int side = 0; side < 2; ++side) ip("netns del " + name(side));
  }
  NetworkPair(const NetworkPair&) = delete;
  explicit operator bool() const { return made_; }

  // What runs a command on a side.
  std::vector<std::string> on(int side) const {
    return {"GLOO_SOCKET_IFNAME=" + cable(side), program(), "netns", "exec", name(side)};
  }
  std::string address(int side) const { return "10.213.0." + std::to_string(side + 1); }
  void cut() const { ip("-n " + name(1) + " link set " + cable(1) + " down"); }

 private:
  static bool ip(const std::string& arguments) {
    return std::system((program() + " " + arguments + " >/dev/null 2>&1").c_str()) == 0;
  }
  static std::string program() {
    for (const char* path : {"/usr/sbin/ip", "/sbin/ip"})
      if (access(path, X_OK) == 0) return path;
    return "/bin/ip";
  }
  std::string name(int side) const { return "dex" + std::to_string(getpid()) + (side ? "b" : "a"); }
  std::string cable(int side) const {
    return "dex" + std::to_string(getpid() % 1000000) + (side ? "b" : "a");
  }

  bool made_ = false;
};

}  // namespace dex::test
