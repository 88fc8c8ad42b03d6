// Runs kernels on the CPU and finds what a GPU would forgive or hide. The threads of a block are
// fibers of one thread of the program; blocks run one after another. Tests link it; products never
// do.
//
// Found in any build: barriers that not all threads reach, warp operations whose lanes disagree,
// wrong masks, misaligned or never awaited cp.async. By running in several schedules and demanding
// equal bits: most missing barriers, waits that come too late, reads of memory never written
// (shared and device memory start as NaN). With AddressSanitizer: accesses out of bounds of shared
// and device memory. With ThreadSanitizer: every unordered pair of accesses within a block that a
// run performs, and between blocks where separate_blocks is set.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct uint3 {
  unsigned x, y, z;
};

namespace dex::emulator {

// What a kernel did wrong, with its place and threads; thrown by run().
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Order : std::uint8_t {
  up,      // warps take turns, threads by number
  down,    // a warp goes on as long as it can, threads by number from the last
  random,  // any thread that can go on
};

struct Schedule {
  Order order = Order::up;
  unsigned seed = 0;
  bool late_copies = true;  // cp.async copies when waited for; else at once
  // under ThreadSanitizer nothing orders blocks; it is slow: at most 6000 threads
  bool separate_blocks = false;
};
// Of the launches that follow.
void use(const Schedule& schedule);

// The schedules tests run a kernel in: each order with early and late copies; two in all where a
// sanitizer makes runs slow, since it sees what the order would hide. use_schedule returns the
// schedule's name.
int schedules();
std::string use_schedule(int number);

// Of the launches that follow only so many blocks run at each end of the grid, in the order of x,
// y, z; 0: all do. For grids whose size is what matters.
void run_ends(unsigned blocks);

// What a block may have of shared memory, in bytes, static and dynamic together; a KiB that the
// system keeps of an opted-in block is taken off.
struct Device {
  const char* name;
  std::size_t shared, shared_opt_in;
};
inline constexpr Device kDevices[] = {
    {"sm_80", 48 * 1024, 163 * 1024},  {"sm_86", 48 * 1024, 99 * 1024},
    {"sm_89", 48 * 1024, 99 * 1024},   {"sm_90", 48 * 1024, 227 * 1024},
    {"sm_100", 48 * 1024, 227 * 1024}, {"sm_120", 48 * 1024, 99 * 1024}};
// One with the least: what runs there runs on all.
inline constexpr const Device& kSmallest = kDevices[1];
// One of kDevices, for the launches that follow; kSmallest where nothing was said.
void use(const Device& device);
// How often kernels have opted in so far: gpu::launch wants it once a kernel and device.
int opt_ins();

// Calls body once per thread; a Fault ends the launch. 0, or the CUDA error number of a launch that
// the device refuses (9: its shape, 1: its shared memory). Static variables are seen as threads
// come to them, so such a launch may have begun; one that no thread comes to is not counted.
int run(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, const std::function<void()>& body,
        bool opted_in = false);

// Whether this program was built with AddressSanitizer, or ThreadSanitizer.
bool address_sanitizer();
bool thread_sanitizer();

// Memory that starts as NaN.
void* allocate(std::size_t bytes);
void release(void* memory);

}  // namespace dex::emulator
