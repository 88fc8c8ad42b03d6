#include "common/text/python_pool.h"

#include <nlohmann/json.hpp>

namespace dex {

PythonPool::PythonPool(std::unique_ptr<PythonProcess> first, Start more, int most)
    : more_(std::move(more)), most_(most) {
  idle_.push_back(std::move(first));
}

nlohmann::json PythonPool::ask(const nlohmann::json& request) {
  std::unique_ptr<PythonProcess> process;
  try {
    process = take();
    nlohmann::json answer = process->ask(request);
    give(std::move(process));
    return answer;
  } catch (...) {
    give(nullptr);
    throw;
  }
}

std::unique_ptr<PythonProcess> PythonPool::take() {
  {
    std::unique_lock lock(mutex_);
    given_.wait(lock, [this] { return !idle_.empty() || running_ < most_; });
    if (!idle_.empty()) {
      auto process = std::move(idle_.back());
      idle_.pop_back();
      return process;
    }
    ++running_;
  }
  return more_();
}

void PythonPool::give(std::unique_ptr<PythonProcess> process) {
  {
    const std::lock_guard lock(mutex_);
    if (process)
      idle_.push_back(std::move(process));
    else
      --running_;
  }
  given_.notify_one();
}

}  // namespace dex
