#include "kernels/emulator/emulator.h"

#include "kernels/emulator/runtime.h"

#include <sys/wait.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <thread>
#include <vector>

#include "kernels/cuda/gpu.h"

using namespace dex;

namespace {

struct Ended {
  int code = -1;
  std::string output;
};

// Faulty kernels run in a process of their own, which sanitizers end.
Ended run_wrong(const std::string& arguments) {
  const std::string command = std::string(DEX_WRONG_KERNELS) + " " + arguments + " 2>&1";
  std::FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  Ended ended;
  char part[4096];
  for (std::size_t count; (count = std::fread(part, 1, sizeof part, pipe)) > 0;)
    ended.output.append(part, count);
  const int status = pclose(pipe);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return ended;
}

// What each kind of program says; "" where it cannot see the fault.
struct Expected {
  const char *kernel, *plain, *address, *thread;
};
const char* const kDiffer = "bits differ";

const char* expected_here(const Expected& e) {
  return emulator::thread_sanitizer()    ? e.thread
         : emulator::address_sanitizer() ? e.address
                                         : e.plain;
}

void check(const Expected& e, const std::string& arguments) {
  const Ended ended = run_wrong(arguments);
  const std::string wanted = expected_here(e);
  INFO(e.kernel << ", exit " << ended.code << ", output:\n" << ended.output);
  if (wanted.empty()) {
    CHECK(ended.code == 0);
    CHECK(ended.output.empty());
    return;
  }
  CHECK(ended.code != 0);
  CHECK(ended.output.find(wanted) != std::string::npos);
}

Expected everywhere(const char* kernel, const char* text) { return {kernel, text, text, text}; }

__global__ void fills_its_memory(int value, int* sum) {
  DYN_SHARED(int, memory);
  SHARED(int, fixed);
  memory[0] = value, fixed = 1;
  *sum = memory[0] + fixed;
}
__global__ void without_memory(int* sum) { *sum = 1; }

}  // namespace

TEST_CASE("what the emulator itself sees it names with place and threads") {
  const Expected all[] = {
      everywhere("barrier_reached_by_half",
                 "deadlock in block (0, 0, 0): threads 0-31: at __syncthreads, wrong_kernels.cu:"),
      everywhere("barriers_in_two_branches",
                 "threads of one block are at two __syncthreads; the other is in line"),
      everywhere("divergent_warp_barrier",
                 ": threads 0, 2, 4, 6, 8, 10, 12, 14 ...: at __syncthreads, wrong_kernels.cu:"),
      everywhere("mask_names_waiting_lanes",
                 ": threads 0-15, 32-47: at a shuffle, wrong_kernels.cu:"),
      everywhere("mask_without_caller",
                 "a warp operation whose mask leaves out the calling lane (thread"),
      everywhere("source_outside_mask",
                 "lane 0 takes the value of lane 20, which is not in the mask"),
      everywhere("two_operations_one_mask",
                 "lanes of one mask are at two operations; the other is in line"),
      everywhere("mma_by_half_a_warp", "mma by a warp of 16 lanes"),
      everywhere("named_barrier_of_part_warps", "a barrier of 48 threads: not whole warps"),
      everywhere("named_barrier_counts_disagree",
                 "a barrier of 32 threads, where others wait for 64"),
      everywhere("misaligned_copy", "cp_async16: an end is not 16-byte aligned"),
      everywhere("misaligned_ldmatrix", "ldmatrix: a row is not 16-byte aligned"),
      everywhere("copy_never_awaited", "cp_async16: its thread exits without having waited for it"),
  };
  for (const Expected& e : all) check(e, e.kernel);
}

TEST_CASE("memory never written and copies not awaited show in the bits") {
  for (const char* kernel :
       {"shared_never_written", "shared_of_the_last_block", "copy_awaited_too_late"})
    check(everywhere(kernel, kDiffer), kernel);
}

TEST_CASE("AddressSanitizer and UndefinedBehaviorSanitizer see bounds and alignment") {
  const Expected all[] = {
      {"shared_out_of_bounds", "", "index 63 out of bounds for type 'float [63]'", ""},
      {"dynamic_shared_out_of_bounds", "", "AddressSanitizer: use-after-poison", ""},
      {"global_out_of_bounds", "", "AddressSanitizer: heap-buffer-overflow", ""},
      {"misaligned_vector", "", "misaligned address", ""},
  };
  for (const Expected& e : all) check(e, e.kernel);
}

TEST_CASE("missing barriers show in the order of threads, and all of them to ThreadSanitizer") {
  const char* race = "ThreadSanitizer: data race";
  const Expected all[] = {
      {"no_barrier_after_writing", kDiffer, kDiffer, race},
      {"no_barrier_before_reuse", kDiffer, kDiffer, race},
      {"no_syncwarp", kDiffer, kDiffer, race},
      {"ring_refilled_too_early", kDiffer, kDiffer, race},
      {"shuffle_as_fence", "", "", race},
      {"plain_sum_in_block", "", "", race},
      {"plain_sum_over_blocks", "", "", ""},
      {"flag_without_fence", "", "", ""},
  };
  for (const Expected& e : all) check(e, e.kernel);
}

TEST_CASE("ThreadSanitizer sees what blocks do to each other where they are kept apart") {
  const char* race = "ThreadSanitizer: data race";
  for (const char* kernel : {"plain_sum_over_blocks", "flag_without_fence"})
    check({kernel, "", "", race}, std::string(kernel) + " apart");
  check(everywhere("flag_with_fence", ""), "flag_with_fence apart");
}

TEST_CASE("launches that no device takes are refused with CUDA's numbers") {
  const auto nothing = [] {};
  CHECK(emulator::run(1, 1025, 0, nothing) == 9);
  CHECK(emulator::run(1, dim3(1, 1, 65), 0, nothing) == 9);
  CHECK(emulator::run(0, 32, 0, nothing) == 9);
  CHECK(emulator::run(dim3(1, 65536), 32, 0, nothing) == 9);
  CHECK(emulator::run(dim3(1, 1, 65536), 32, 0, nothing) == 9);
  CHECK(emulator::run(65536, 1, 0, nothing) == 0);
}

TEST_CASE("only the ends of a grid run where that is asked") {
  std::vector<int> ran;
  ran.reserve(12);  // a kernel must not allocate
  const auto remember = [&] { ran.push_back(int(blockIdx.x + 3 * (blockIdx.y + 2 * blockIdx.z))); };
  const auto blocks = [&](unsigned ends) {
    ran.clear();
    emulator::run_ends(ends);
    CHECK(emulator::run(dim3(3, 2, 2), 1, 0, remember) == 0);
    emulator::run_ends(0);
    return ran;
  };
  CHECK(blocks(2) == std::vector<int>{0, 1, 10, 11});
  CHECK(blocks(0).size() == 12);
  CHECK(blocks(6).size() == 12);
  CHECK(blocks(100).size() == 12);
}

TEST_CASE("blocks kept apart must be few") {
  emulator::use({.separate_blocks = true});
  if (emulator::thread_sanitizer())
    CHECK_THROWS_WITH(emulator::run(7, 1024, 0, [] {}), Catch::Matchers::Contains("6000"));
  else
    CHECK(emulator::run(7, 1024, 0, [] {}) == 0);
  emulator::use_schedule(0);
}

TEST_CASE("shared memory, static and dynamic, is what each device has without and with opting in") {
  constexpr std::size_t kKiB = 1024, kStatic = 4;
  const auto nothing = [] {};
  const auto one_variable = [] {
    static emulator::Slot slot;
    emulator::shared(slot, kStatic, 4, emulator::Site::here());
  };
  // CUDA's C++ Programming Guide, technical specifications per compute capability
  const std::map<std::string, std::size_t> kib = {{"sm_80", 163}, {"sm_86", 99},   {"sm_89", 99},
                                                  {"sm_90", 227}, {"sm_100", 227}, {"sm_120", 99}};
  std::size_t least = 1000 * kKiB;
  for (const emulator::Device& device : emulator::kDevices) {
    CAPTURE(device.name);
    emulator::use(device);
    for (const bool opted_in : {false, true}) {
      const std::size_t most = (opted_in ? kib.at(device.name) : 48) * kKiB;
      CHECK(emulator::run(1, 32, most, nothing, opted_in) == 0);
      CHECK(emulator::run(1, 32, most + 1, nothing, opted_in) == 1);
      CHECK(emulator::run(1, 32, most - kStatic, one_variable, opted_in) == 0);
      CHECK(emulator::run(1, 32, most - kStatic + 1, one_variable, opted_in) == 1);
    }
    least = std::min(least, device.shared_opt_in);
  }
  CHECK(std::size(emulator::kDevices) == kib.size());
  CHECK(emulator::kSmallest.shared_opt_in == least);
  emulator::use(emulator::kSmallest);
  CHECK(emulator::run(1, 32, 0, one_variable) == 0);
}

TEST_CASE(
    "a kernel is given its shared memory by the first launch on each device, and by no other") {
  int sum = 0, before = emulator::opt_ins();
  const auto asked = [&] {
    return emulator::opt_ins() - std::exchange(before, emulator::opt_ins());
  };
  const auto launch = [&](std::size_t bytes) {
    return gpu::launch(fills_its_memory, 1, 1, bytes, nullptr, 3, &sum);
  };
  for (const emulator::Device& device : emulator::kDevices) {
    CAPTURE(device.name);
    emulator::use(device);
    const std::size_t most = device.shared_opt_in - sizeof(int);  // beside what is fixed
    CHECK(launch(64) == 0);
    CHECK(asked() == 1);
    for (const std::size_t bytes : {std::size_t{64}, most}) CHECK(launch(bytes) == 0);
    CHECK(launch(most + 1) == 1);
    CHECK(asked() == 0);
  }
  emulator::use(emulator::kDevices[0]);
  CHECK(launch(emulator::kDevices[0].shared_opt_in - sizeof(int)) == 0);
  CHECK(gpu::launch(without_memory, 1, 1, 0, nullptr, &sum) == 0);
  CHECK(asked() == 0);
  emulator::use(emulator::kSmallest);
}

TEST_CASE(
    "threads that launch a kernel at once give it its shared memory once, after a failure again") {
  gpu::OptedIn opted_in;
  constexpr int kDevices = 3, kThreads = 4;
  std::atomic<int> asked[kDevices] = {}, errors = 0;
  bool done[kDevices] = {};  // guarded by once() itself
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (int repeat = 0; repeat < 100; ++repeat)
        for (int device = 0; device < kDevices; ++device)
          errors += opted_in.once(&opted_in, device, [&, device] {
            done[device] = true;
            return asked[device]++ == 0 ? 7 : 0;
          });
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& times : asked) CHECK(times == 2);
  CHECK(errors == kDevices * 7);
  CHECK(std::all_of(done, done + kDevices, [](bool d) { return d; }));
}

TEST_CASE("an exception in a kernel ends the launch, and the next one works") {
  const auto throws = [] { throw 1; };
  CHECK_THROWS_WITH(emulator::run(1, 64, 0, throws),
                    Catch::Matchers::Contains("an exception left the kernel"));
  int calls = 0;
  CHECK(emulator::run(2, 64, 0, [&] { __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED); }) == 0);
  CHECK(calls == 128);
}
