// The shared memory that a launch asks for, on a device and on the emulator.
#pragma once
#include <cstddef>

namespace dex::gpu {

// Whether a launch asks for more than 48 KiB. A kernel's static variables count there as well, and
// a branch's even where it is not taken: so every launch with dynamic memory asks.
constexpr bool opts_in(std::size_t dynamic_shared_bytes) { return dynamic_shared_bytes > 0; }

}  // namespace dex::gpu
