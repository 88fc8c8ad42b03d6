# dex_torch: libtorch from the wheel in DEX_TORCH_DIR. DEX_WITH_CUDA says whether its CUDA half is in it.

# Why CUDA cannot be used, or nothing. Only a trial configure knows whether libtorch's own package is content, and a
# FATAL_ERROR in it could not be caught here; so the trial is a project of its own, run once per torch and nvcc.
function(dex_cuda_obstacle result)
  set(${result} "" PARENT_SCOPE)
  find_program(DEX_NVCC nvcc PATHS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
  if(NOT DEX_NVCC)
    set(${result} "nvcc not found" PARENT_SCOPE)
    return()
  endif()
  if(NOT EXISTS ${DEX_TORCH_DIR}/lib/libtorch_cuda.so)
    set(${result} "${DEX_TORCH_DIR}/lib/libtorch_cuda.so not found" PARENT_SCOPE)
    return()
  endif()
  foreach(library libcudnn.so.9 libnccl.so.2 libcublas.so.13)
    file(GLOB found ${DEX_TORCH_DIR}/../nvidia/*/lib/${library})
    if(NOT found)
      set(${result} "${library} not found beside torch (launch/setup --cuda installs it)" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  if(NOT "${DEX_TORCH_PROBED}" STREQUAL "${DEX_TORCH_DIR} ${DEX_NVCC}")
    execute_process(
      COMMAND ${CMAKE_COMMAND} -S ${PROJECT_SOURCE_DIR}/launch/cmake/torch_probe -B ${PROJECT_BINARY_DIR}/torch_probe
        -G ${CMAKE_GENERATOR} -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -DCMAKE_CUDA_COMPILER=${DEX_NVCC}
        -DCMAKE_CUDA_HOST_COMPILER=${CMAKE_CXX_COMPILER} -DTORCH_CUDA_ARCH_LIST=${DEX_TORCH_ARCHITECTURES}
        -DCMAKE_PREFIX_PATH=${DEX_TORCH_DIR}
      RESULT_VARIABLE code OUTPUT_QUIET ERROR_VARIABLE complaint)
    if(NOT code EQUAL 0)
      string(REGEX MATCH "[^\n]*(CMake Error|rror:)[^\n]*\n[^\n]*" complaint "${complaint}")
      set(${result} "libtorch's CMake package refuses: ${complaint}" PARENT_SCOPE)
      return()
    endif()
    set(DEX_TORCH_PROBED "${DEX_TORCH_DIR} ${DEX_NVCC}" CACHE INTERNAL "")
  endif()
endfunction()

# Without this list the package asks the compiler in a dialect it does not know ("CUDA20") and stops.
set(DEX_TORCH_ARCHITECTURES "8.0 9.0 10.0" CACHE STRING "GPU architectures, as TORCH_CUDA_ARCH_LIST")
set(DEX_WITH_CUDA OFF)
if(NOT DEX_CUDA STREQUAL OFF)
  dex_cuda_obstacle(DEX_CUDA_OBSTACLE)
  if(NOT DEX_CUDA_OBSTACLE)
    set(DEX_WITH_CUDA ON)
  elseif(DEX_CUDA STREQUAL AUTO)
    message(STATUS "Building without CUDA: ${DEX_CUDA_OBSTACLE}")
  else()
    message(FATAL_ERROR "DEX_CUDA=${DEX_CUDA}, but ${DEX_CUDA_OBSTACLE}")
  endif()
endif()

add_library(dex_torch INTERFACE)
# First in the list of needed libraries: libtorch exports its own, older copies of std::filesystem, which must not be found
# before the ones that our code was compiled against.
target_link_libraries(dex_torch INTERFACE -Wl,--push-state,--no-as-needed -lstdc++ -Wl,--pop-state)
if(DEX_WITH_CUDA)
  set(TORCH_CUDA_ARCH_LIST ${DEX_TORCH_ARCHITECTURES})
  set(CMAKE_CUDA_COMPILER ${DEX_NVCC})
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  find_package(Torch REQUIRED PATHS ${DEX_TORCH_DIR} NO_DEFAULT_PATH)
  set(CMAKE_CUDA_FLAGS "")  # it added what its own kernels need
  foreach(library torch torch_library torch_cpu torch_cpu_library torch_cuda torch_cuda_library c10 c10_cuda)
    set_target_properties(${library} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "")  # see -idirafter below
  endforeach()
  target_link_libraries(dex_torch INTERFACE ${TORCH_LIBRARIES})
else()
  # libtorch's own CMake package insists on nvcc, so a CPU build names the two libraries itself.
  target_link_libraries(dex_torch INTERFACE ${DEX_TORCH_DIR}/lib/libtorch_cpu.so ${DEX_TORCH_DIR}/lib/libc10.so)
endif()
# Searched last: the wheel brings headers of fmt, too, newer than the fmt that spdlog was built with.
target_compile_options(dex_torch INTERFACE "SHELL:-idirafter ${DEX_TORCH_DIR}/include"
  "SHELL:-idirafter ${DEX_TORCH_DIR}/include/torch/csrc/api/include")
target_link_options(dex_torch INTERFACE -Wl,-rpath,${DEX_TORCH_DIR}/lib -Wl,--disable-new-dtags)
