# Our own kernels: nvcc where there is one, whatever libtorch it is; the host compiler for the emulator.
set(DEX_NVCC_FOUND OFF)
if(NOT DEX_CUDA STREQUAL OFF)
  find_program(DEX_NVCC nvcc PATHS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
  if(DEX_NVCC)
    set(CMAKE_CUDA_COMPILER ${DEX_NVCC})
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
    set(CMAKE_CUDA_ARCHITECTURES 80)
    enable_language(CUDA)
    unset(CMAKE_CUDA_ARCHITECTURES)  # libtorch's package has a list of its own and wants no other
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # unknown to CMake before 3.26
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
    set(DEX_NVCC_FOUND ON)
  endif()
endif()

# No contraction, no approximate functions: a kernel's bits are those of its formulas.
function(dex_cuda_options target)
  set_target_properties(${target} PROPERTIES CUDA_STANDARD 20 CUDA_EXTENSIONS OFF
    CUDA_ARCHITECTURES "80-real;90-real;100")  # 100 leaves PTX for later ones
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false --expt-relaxed-constexpr -Werror=all-warnings
    -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers,-ffp-contract=off>)
endfunction()

function(dex_cuda_library name)
  add_library(${name} STATIC ${ARGN})
  dex_cuda_options(${name})
endfunction()

# fmaf is a library call where the target has no such instruction: the same bits, slower.
include(CheckCXXSourceRuns)
set(CMAKE_REQUIRED_FLAGS -march=x86-64-v3)
check_cxx_source_runs("int main() { return __builtin_cpu_supports(\"avx2\") && __builtin_cpu_supports(\"fma\") ? 0 : 1; }" DEX_RUNS_X86_64_V3)
unset(CMAKE_REQUIRED_FLAGS)
set(DEX_HOST_VECTORS $<$<BOOL:${DEX_RUNS_X86_64_V3}>:-march=x86-64-v3>)
