// Training on a GPU, where there is one: close to the CPU's, and the same bits again.
#include <catch2/catch.hpp>
#include <iostream>

#include "common/base/file.h"
#include "common/base/safetensors.h"
#include "common/model/device.h"
#include "common/model/tensors.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_samples.h"
#include "train/loop/train_loop.h"

using namespace dex;

namespace {

bool no_gpu() {
  if (gpu_count() == 0) std::cout << "SKIPPED: no GPU is seen here\n";
  return gpu_count() == 0;
}

// Leaves `out`.
void train(const std::filesystem::path& model, const std::filesystem::path& out, at::Device device,
           const std::string& init) {
  const DepthSet depths({1, 3}, 4);
  const Model loaded =
      Model::load(model, depths, Dtype::f32, {WeightLayout::rows, device}, DigestsOf::what_is_read);
  const auto samples = test::tiny_samples(21, 97, 2);
  const TrainOptions options{.out = out,
                             .depths = "1,3",
                             .steps = 6,
                             .batch_size = 4,
                             .micro_batch = 2,
                             .learning_rate = 1e-2,
                             .init = init,
                             .dtype = "f32"};
  TrainLoop(options, loaded,
            {.size = samples.size(),
             .sample = [&](std::uint64_t i) { return samples.at(i); },
             .held_out = test::tiny_samples(5, 97, 3),
             .digest = "samples"},
            [] { return false; })
      .run();
}

}  // namespace

TEST_CASE("a GPU trains the adapters that the CPU trains") {
  if (no_gpu()) return;
  const test::TempDir dir;
  const auto model = test::TinyModel{}.write(dir / "m");
  const at::Device gpu = choose_device("cuda", 0);
  const std::string init = GENERATE("paper", "ridge");
  train(model, dir / "cpu", at::kCPU, init);
  train(model, dir / "gpu", gpu, init);
  train(model, dir / "again", gpu, init);
  const std::string file = "adapter_model.safetensors";
  CHECK(read_file(dir / "gpu" / file) == read_file(dir / "again" / file));
  const WeightFile ours = WeightFile::open(dir / "gpu" / file),
                   theirs = WeightFile::open(dir / "cpu" / file);
  for (const auto& [name, stored] : theirs.tensors()) {
    INFO(name);
    const at::Tensor seen = view_of(ours.at(name)), wanted = view_of(stored);
    CHECK((seen - wanted).norm().item<float>() <= 1e-3f * (1e-3f + wanted.norm().item<float>()));
  }
}

TEST_CASE("a device that is not there is refused by name") {
  CHECK(choose_device("cpu", 7).is_cpu());
  if (gpu_count() > 0) {
    CHECK(choose_device("auto", 0).is_cuda());
    if (gpu_count() > 1)
      test::check_refused(ExitCode::usage, {"--device is cuda", "process 99"},
                          [] { choose_device("cuda", 99); });
    return;
  }
  CHECK(choose_device("auto", 3).is_cpu());
  test::check_refused(ExitCode::usage, {"--device is cuda", "GPU"},
                      [] { choose_device("cuda", 0); });
}
