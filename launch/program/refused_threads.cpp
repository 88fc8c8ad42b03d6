#include "launch/program/refused_threads.h"

#include <ATen/Parallel.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <future>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "common/base/start_thread.h"

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

constexpr unsigned kPoolSeconds = 10;  // a pool starts within milliseconds
constexpr int kPools = 2;              // OpenMP's and the one that waits

// Error(temporary) where the system does not give so many threads at once.
void require_threads(int count) {
  std::promise<void> tried;
  const auto over = tried.get_future().share();
  std::vector<std::thread> threads;
  std::exception_ptr refusal;
  try {
    for (int i = 0; i < count; ++i)
      threads.push_back(start_thread("libtorch's pools", [over] { over.wait(); }));
  } catch (const Error&) {
    refusal = std::current_exception();
  }
  tried.set_value();
  for (std::thread& thread : threads) thread.join();
  if (refusal) std::rethrow_exception(refusal);
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

void set_torch_threads(int threads) {
  require_threads(kPools * (threads - 1));
  struct sigaction action{}, before_it;
  action.sa_handler = [](int) { leave(); };
  sigaction(SIGALRM, &action, &before_it);
  alarm(kPoolSeconds);
  at::set_num_threads(threads);
  alarm(0);
  sigaction(SIGALRM, &before_it, nullptr);
}

}  // namespace dex
