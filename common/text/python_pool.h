// Python processes that render one template: the first at once, others when all are busy.
#pragma once
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "common/text/python_process.h"

namespace dex {

class PythonPool {
 public:
  using Start = std::function<std::unique_ptr<PythonProcess>()>;
  PythonPool(std::unique_ptr<PythonProcess> first, Start more, int most);

  // As PythonProcess::ask, from any thread. A process that failed is not asked again.
  nlohmann::json ask(const nlohmann::json& request);

 private:
  std::unique_ptr<PythonProcess> take();
  void give(std::unique_ptr<PythonProcess> process);

  Start more_;
  std::mutex mutex_;
  std::condition_variable given_;
  std::vector<std::unique_ptr<PythonProcess>> idle_;
  int running_ = 1, most_;
};

}  // namespace dex
