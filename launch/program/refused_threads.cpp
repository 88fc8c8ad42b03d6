#include "launch/program/refused_threads.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <system_error>

#include "common/base/error.h"

namespace dex {
namespace {

std::atomic<bool> watched = false;
std::terminate_handler before = nullptr;

bool none_to_be_had() {
  pthread_t thread;
  const int error =
      pthread_create(&thread, nullptr, [](void*) -> void* { return nullptr; }, nullptr);
  if (error == 0) pthread_join(thread, nullptr);
  return error == EAGAIN;
}

bool is_refusal(const std::exception_ptr& thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const std::system_error& error) {
    return error.code() == std::errc::resource_unavailable_try_again;
  } catch (...) {
  }
  return false;
}

[[noreturn]] void leave() {
  constexpr std::string_view kText =
      "dex: error: the system refuses a thread to a library: Resource temporarily unavailable; "
      "fewer threads, or a higher limit of processes or memory, may help\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kText.data(), kText.size());
  _exit(int(ExitCode::temporary));
}

void at_exit() {
  if (watched && none_to_be_had()) leave();
}

[[noreturn]] void at_terminate() {
  if (watched && (is_refusal(std::current_exception()) || none_to_be_had())) leave();
  if (before) before();
  std::abort();
}

}  // namespace

RefusedThreads::RefusedThreads() {
  before = std::set_terminate(at_terminate);
  std::atexit(at_exit);
  watched = true;
}

RefusedThreads::~RefusedThreads() { watched = false; }

}  // namespace dex
