#include "common/comm/connection_deadline.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <csignal>

namespace dex {
namespace {

constexpr int kMostSockets = 4096;
constexpr timeval kAgain{0, 200'000};  // calls may connect anew

volatile std::sig_atomic_t port = 0;
struct sigaction before;

bool leads_to_port(int socket) {
  sockaddr_in6 peer{};  // the port has the same place in both families
  socklen_t size = sizeof peer;
  return getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
         (peer.sin6_family == AF_INET || peer.sin6_family == AF_INET6) &&
         ntohs(peer.sin6_port) == port;
}

void cut(int) {
  const int error = errno;
  for (int socket = 0; socket < kMostSockets; ++socket)
    if (leads_to_port(socket)) shutdown(socket, SHUT_RDWR);
  errno = error;
}

}  // namespace

ConnectionDeadline::ConnectionDeadline(std::uint16_t to, std::chrono::milliseconds time) {
  port = to;
  struct sigaction action{};
  action.sa_handler = cut;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, &before);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  const itimerval timer{kAgain, {seconds.count(), suseconds_t((time - seconds).count() * 1000)}};
  setitimer(ITIMER_REAL, &timer, nullptr);
}

ConnectionDeadline::~ConnectionDeadline() {
  const itimerval none{};
  setitimer(ITIMER_REAL, &none, nullptr);
  sigaction(SIGALRM, &before, nullptr);
}

}  // namespace dex
