// Stands for Python where a test starts thousands: hands its three files to the server of
// forked_python.h, which forks a Python that has its modules already, and ends as that one does.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>

int main() {
  const char* const place = std::getenv("DEX_FORKED_PYTHON");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (!place || std::strlen(place) >= sizeof address.sun_path) return 99;
  std::strcpy(address.sun_path, place);
  const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return 98;
  char byte = 0;
  iovec bytes{&byte, 1};
  constexpr std::array<int, 3> files{0, 1, 2};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof files)] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof files);
  std::memcpy(CMSG_DATA(head), files.data(), sizeof files);
  if (sendmsg(server, &message, 0) != 1) return 97;
  // the other one holds them now: their ends must show
  for (const int file : files) close(file);
  std::array<unsigned char, 2> end{};  // a code, or a signal
  if (recv(server, end.data(), end.size(), MSG_WAITALL) != 2) return 96;
  if (end[1] != 0) raise(end[1]);
  return end[0];
}
