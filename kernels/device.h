#pragma once

namespace dex {

// How many CUDA devices this program can use: 0 when it was built without CUDA.
int cuda_devices();

}  // namespace dex
