#include "common/base/h5_handle.h"

#include <hdf5.h>

#include <type_traits>

#include "common/base/error.h"

namespace dex::h5 {
namespace {

static_assert(std::is_same_v<hid_t, std::int64_t> && std::is_same_v<herr_t, int>);

constexpr std::size_t kChunkCacheBytes = 1 << 18;

herr_t keep_innermost(unsigned, const H5E_error2_t* entry, void* text) {
  auto& kept = *static_cast<std::string*>(text);
  if (kept.empty() && entry->desc) kept = entry->desc;
  return 0;
}

// The innermost entry of the error stack; of a failed system call only its message ("No space left
// on device").
std::string library_says() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &text);
  const std::string mark = "error message = '";
  if (const auto begin = text.find(mark); begin != std::string::npos) {
    const auto first = begin + mark.size();
    return text.substr(first, text.find('\'', first) - first);
  }
  return text.empty() ? "HDF5 gives no reason" : text;
}

}  // namespace

std::mutex& lock() {
  static std::mutex mutex;
  return mutex;
}

// HDF5's exit handler crashes after a failed write, so it must be off before anything else starts
// the library.
void start_library() {
  static const bool started = [] {
    H5dont_atexit();
    H5open();
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    return true;
  }();
  (void)started;
}

void fail_at(const std::filesystem::path& path, const std::string& object, const char* what) {
  fail(ExitCode::io, "{}: HDF5 object {} {}: {}", path.string(), object, what, library_says());
}

template <>
std::int64_t type_of<std::uint8_t>() {
  return H5T_STD_U8LE;
}
template <>
std::int64_t type_of<std::uint32_t>() {
  return H5T_STD_U32LE;
}
template <>
std::int64_t type_of<std::uint64_t>() {
  return H5T_STD_U64LE;
}
template <>
std::int64_t type_of<std::int32_t>() {
  return H5T_STD_I32LE;
}
template <>
std::int64_t type_of<std::int64_t>() {
  return H5T_STD_I64LE;
}
template <>
std::int64_t type_of<float>() {
  return H5T_IEEE_F32LE;
}

// V110 bounds give checksums to all metadata; with fletcher32 on the data no altered byte goes
// unseen.
Handle file_access() {
  Handle list(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_libver_bounds(list.get(), H5F_LIBVER_V110, H5F_LIBVER_V110);
  H5Pset_file_locking(list.get(), false, true);  // network file systems may have no locks
  return list;
}

Handle data_set_access() {
  Handle list(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
  H5Pset_chunk_cache(list.get(), 101, kChunkCacheBytes, 1.0);
  return list;
}

}  // namespace dex::h5
