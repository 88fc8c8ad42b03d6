#include "common/h5.h"

#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>

#include "common/error.h"
#include "common/file.h"

namespace dex {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kChunkElements = 16384;  // one sample of usual length touches one or two chunks
constexpr std::size_t kChunkCacheBytes = 1 << 18;

// The library keeps global state whatever its build says about threads: every call, handles' closing
// included, happens under this lock.
std::mutex& lock() {
  static std::mutex mutex;
  return mutex;
}

// HDF5's exit handler crashes after a failed write, so it must be off before anything else starts the
// library.
void start_library() {
  static const bool started = [] {
    H5dont_atexit();
    H5open();
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    return true;
  }();
  (void)started;
}

herr_t keep_innermost(unsigned, const H5E_error2_t* entry, void* text) {
  auto& kept = *static_cast<std::string*>(text);
  if (kept.empty() && entry->desc) kept = entry->desc;
  return 0;
}

// The innermost entry of the error stack; of a failed system call only its message ("No space left on
// device").
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

[[noreturn]] void fail_at(const fs::path& path, const std::string& object, const char* what) {
  fail(ExitCode::io, "{}: HDF5 object {} {}: {}", path.string(), object, what, library_says());
}

// An owned id. Lives inside the lock only, or in a State whose destructor takes it.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Close close) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  hid_t get() const { return id_; }
  bool good() const { return id_ >= 0; }
  herr_t close() { return id_ >= 0 ? close_(std::exchange(id_, -1)) : 0; }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

template <typename T>
hid_t type_of();
template <>
hid_t type_of<std::uint8_t>() {
  return H5T_STD_U8LE;
}
template <>
hid_t type_of<std::uint32_t>() {
  return H5T_STD_U32LE;
}
template <>
hid_t type_of<std::uint64_t>() {
  return H5T_STD_U64LE;
}
template <>
hid_t type_of<std::int32_t>() {
  return H5T_STD_I32LE;
}
template <>
hid_t type_of<std::int64_t>() {
  return H5T_STD_I64LE;
}
template <>
hid_t type_of<float>() {
  return H5T_IEEE_F32LE;
}

// V110 bounds give checksums to all metadata; with fletcher32 on the data no altered byte goes unseen.
Handle access_properties() {
  Handle list(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_libver_bounds(list.get(), H5F_LIBVER_V110, H5F_LIBVER_V110);
  H5Pset_file_locking(list.get(), false, true);  // network file systems may have no locks
  return list;
}

// Times stay out of the file: equal content gives equal bytes.
Handle data_set_properties(const std::vector<hsize_t>& chunk) {
  Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_chunk(list.get(), static_cast<int>(chunk.size()), chunk.data());
  H5Pset_fletcher32(list.get());
  H5Pset_obj_track_times(list.get(), false);
  return list;
}

Handle data_set_access() {
  Handle list(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
  H5Pset_chunk_cache(list.get(), 101, kChunkCacheBytes, 1.0);
  return list;
}

// Halves the first dimension that still has two elements until the chunk is small: long runs of the last one
// stay whole.
std::vector<hsize_t> chunk_of(const std::vector<hsize_t>& shape) {
  std::vector<hsize_t> chunk;
  for (hsize_t size : shape) chunk.push_back(std::max<hsize_t>(size, 1));
  const auto elements = [&] {
    return std::accumulate(chunk.begin(), chunk.end(), hsize_t{1}, std::multiplies<>());
  };
  while (elements() > kChunkElements) {
    auto& widest = *std::find_if(chunk.begin(), chunk.end(), [](hsize_t size) { return size > 1; });
    widest = (widest + 1) / 2;
  }
  return chunk;
}

}  // namespace

// ---- writing

struct H5Writer::State {
  fs::path path, temporary;
  Handle file;
  std::map<std::string, std::pair<Handle, std::uint64_t>> growing;  // data set and its length
  bool published = false;

  ~State() {
    const std::lock_guard guard(lock());
    growing.clear();
    file.close();
    if (!published) unlink(temporary.c_str());  // even a failed H5Fcreate may leave a file
  }

  template <typename T>
  void append(const std::string& name, std::span<const T> values) {
    const std::lock_guard guard(lock());
    require(file.good(), ExitCode::bug, "{}: written to after close()", path.string());
    auto& [set, length] = growing.try_emplace(name).first->second;
    if (!set.good()) set = create_growing(name, type_of<T>());
    const hsize_t first = length, count = values.size(), total = first + count;
    if (count == 0) return;
    if (H5Dset_extent(set.get(), &total) < 0) fail_at(path, name, "cannot grow");
    const Handle stored(H5Dget_space(set.get()), H5Sclose),
        memory(H5Screate_simple(1, &count, nullptr), H5Sclose);
    H5Sselect_hyperslab(stored.get(), H5S_SELECT_SET, &first, nullptr, &count, nullptr);
    if (H5Dwrite(set.get(), type_of<T>(), memory.get(), stored.get(), H5P_DEFAULT, values.data()) < 0)
      fail_at(path, name, "cannot be written");
    length = total;
  }

  Handle create_growing(const std::string& name, hid_t type) {
    const hsize_t none = 0, unlimited = H5S_UNLIMITED;
    return create(name, type, Handle(H5Screate_simple(1, &none, &unlimited), H5Sclose), {kChunkElements});
  }

  Handle create(const std::string& name, hid_t type, const Handle& space, const std::vector<hsize_t>& chunk) {
    const Handle properties = data_set_properties(chunk), access = data_set_access();
    Handle set(
        H5Dcreate2(file.get(), name.c_str(), type, space.get(), H5P_DEFAULT, properties.get(), access.get()),
        H5Dclose);
    if (!set.good()) fail_at(path, name, "cannot be created");
    return set;
  }

  template <typename T>
  void write(const std::string& name, std::span<const T> values, const std::vector<std::uint64_t>& shape) {
    const std::lock_guard guard(lock());
    require(file.good(), ExitCode::bug, "{}: written to after close()", path.string());
    const std::vector<hsize_t> sizes(shape.begin(), shape.end());
    const auto elements = std::accumulate(sizes.begin(), sizes.end(), hsize_t{1}, std::multiplies<>());
    require(!sizes.empty() && elements == values.size(), ExitCode::bug,
            "{}: data set {} has {} values for {} places", path.string(), name, values.size(), elements);
    const Handle space(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr), H5Sclose);
    Handle set = create(name, type_of<T>(), space, chunk_of(sizes));
    if (H5Dwrite(set.get(), type_of<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0 ||
        set.close() < 0)
      fail_at(path, name, "cannot be written");
  }

  void attribute(const std::string& name, hid_t type, const void* value) {
    require(file.good(), ExitCode::bug, "{}: written to after close()", path.string());
    const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
    Handle set(H5Acreate2(file.get(), name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    if (!set.good() || H5Awrite(set.get(), type, value) < 0 || set.close() < 0)
      fail_at(path, name, "cannot be written as an attribute");
  }
};

H5Writer::H5Writer(const fs::path& path) : state_(std::make_unique<State>()) {
  state_->path = path;
  state_->temporary = path.string() + ".tmp-" + std::to_string(getpid());
  const std::lock_guard guard(lock());
  start_library();
  const Handle access = access_properties(), creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation.get(), false);
  state_->file =
      Handle(H5Fcreate(state_->temporary.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), H5Fclose);
  if (!state_->file.good()) fail_at(path, "/", "cannot be created");
}

H5Writer::~H5Writer() = default;

void H5Writer::append(const std::string& name, std::span<const std::uint32_t> v) { state_->append(name, v); }
void H5Writer::append(const std::string& name, std::span<const std::uint64_t> v) { state_->append(name, v); }
void H5Writer::append(const std::string& name, std::span<const std::uint8_t> v) { state_->append(name, v); }

void H5Writer::write(const std::string& name, std::span<const std::int32_t> values,
                     std::vector<std::uint64_t> shape) {
  state_->write(name, values, shape);
}
void H5Writer::write(const std::string& name, std::span<const float> values,
                     std::vector<std::uint64_t> shape) {
  state_->write(name, values, shape);
}

void H5Writer::attribute(const std::string& name, const std::string& value) {
  const std::lock_guard guard(lock());
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), std::max<std::size_t>(value.size(), 1));
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  state_->attribute(name, type.get(), value.c_str());
}

void H5Writer::attribute(const std::string& name, std::int64_t value) {
  const std::lock_guard guard(lock());
  state_->attribute(name, type_of<std::int64_t>(), &value);
}

void H5Writer::close() {
  {
    const std::lock_guard guard(lock());
    require(state_->file.good(), ExitCode::bug, "{}: closed twice", state_->path.string());
    for (auto& [name, set] : state_->growing)
      if (set.first.close() < 0) fail_at(state_->path, name, "cannot be closed");
    if (state_->file.close() < 0) fail_at(state_->path, "/", "cannot be closed");
  }
  sync_file(state_->temporary);
  rename_durably(state_->temporary, state_->path);
  state_->published = true;
}

// ---- reading

struct H5Reader::State {
  fs::path path;
  Handle file;

  ~State() {
    const std::lock_guard guard(lock());
    file.close();
  }

  Handle open(const std::string& name) const {
    const Handle access = data_set_access();
    Handle set(H5Dopen2(file.get(), name.c_str(), access.get()), H5Dclose);
    if (!set.good()) fail_at(path, name, "cannot be opened");
    return set;
  }

  std::vector<hsize_t> shape(const Handle& set, const std::string& name) const {
    const Handle space(H5Dget_space(set.get()), H5Sclose);
    const int rank = H5Sget_simple_extent_ndims(space.get());
    if (rank < 0) fail_at(path, name, "has no shape");
    std::vector<hsize_t> sizes(static_cast<std::size_t>(rank));
    H5Sget_simple_extent_dims(space.get(), sizes.data(), nullptr);
    return sizes;
  }

  // Checks the stored type, and the claimed number of elements against the bytes that are really there.
  template <typename T>
  hsize_t elements(const Handle& set, const std::string& name) const {
    const Handle type(H5Dget_type(set.get()), H5Tclose);
    require(H5Tequal(type.get(), type_of<T>()) > 0, ExitCode::io,
            "{}: data set {} has elements of {} bytes of another type than the {} bytes wanted",
            path.string(), name, H5Tget_size(type.get()), sizeof(T));
    hsize_t total = 1;
    for (hsize_t size : shape(set, name))
      total = size && total > UINT64_MAX / size ? UINT64_MAX : total * size;
    const hsize_t stored = H5Dget_storage_size(set.get()) / sizeof(T);
    require(total <= stored, ExitCode::io, "{}: data set {} claims {} elements and stores {}", path.string(),
            name, total, stored);
    return total;
  }

  template <typename T>
  std::vector<T> read_range(const std::string& name, hsize_t first, hsize_t count) const {
    const std::lock_guard guard(lock());
    const Handle set = open(name);
    const hsize_t total = elements<T>(set, name);
    require(first <= total && count <= total - first, ExitCode::io,
            "{}: data set {} has {} elements, wanted {} from {}", path.string(), name, total, count, first);
    require(shape(set, name).size() == 1, ExitCode::io, "{}: data set {} is not one-dimensional",
            path.string(), name);
    std::vector<T> values(count);
    if (count == 0) return values;
    const Handle stored(H5Dget_space(set.get()), H5Sclose),
        memory(H5Screate_simple(1, &count, nullptr), H5Sclose);
    H5Sselect_hyperslab(stored.get(), H5S_SELECT_SET, &first, nullptr, &count, nullptr);
    if (H5Dread(set.get(), type_of<T>(), memory.get(), stored.get(), H5P_DEFAULT, values.data()) < 0)
      fail_at(path, name, "cannot be read");
    return values;
  }

  template <typename T>
  std::vector<T> read_whole(const std::string& name) const {
    const std::lock_guard guard(lock());
    const Handle set = open(name);
    std::vector<T> values(elements<T>(set, name));
    if (!values.empty() && H5Dread(set.get(), type_of<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0)
      fail_at(path, name, "cannot be read");
    return values;
  }

  Handle open_attribute(const std::string& name) const {
    Handle attribute(H5Aopen(file.get(), name.c_str(), H5P_DEFAULT), H5Aclose);
    if (!attribute.good()) fail_at(path, name, "is missing among the attributes");
    return attribute;
  }
};

H5Reader::H5Reader(const fs::path& path) : state_(std::make_unique<State>()) {
  require(fs::exists(path), ExitCode::usage, "{}: no such file", path.string());
  state_->path = path;
  const std::lock_guard guard(lock());
  start_library();
  const Handle access = access_properties();
  state_->file = Handle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  if (!state_->file.good()) fail_at(path, "/", "cannot be opened");
}

H5Reader::~H5Reader() = default;

std::vector<std::string> H5Reader::names() const {
  const std::lock_guard guard(lock());
  std::vector<std::string> names;
  const auto add = [](hid_t, const char* name, const H5L_info_t*, void* data) {
    static_cast<std::vector<std::string>*>(data)->push_back(name);
    return 0;
  };
  if (H5Literate(state_->file.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, add, &names) < 0)
    fail_at(state_->path, "/", "cannot be listed");
  return names;
}

std::vector<std::uint64_t> H5Reader::shape(const std::string& name) const {
  const std::lock_guard guard(lock());
  const Handle set = state_->open(name);
  const auto sizes = state_->shape(set, name);
  return {sizes.begin(), sizes.end()};
}

std::vector<std::uint32_t> H5Reader::read_u32(const std::string& name, std::uint64_t first,
                                              std::uint64_t count) const {
  return state_->read_range<std::uint32_t>(name, first, count);
}
std::vector<std::uint64_t> H5Reader::read_u64(const std::string& name, std::uint64_t first,
                                              std::uint64_t count) const {
  return state_->read_range<std::uint64_t>(name, first, count);
}
std::vector<std::uint8_t> H5Reader::read_u8(const std::string& name, std::uint64_t first,
                                            std::uint64_t count) const {
  return state_->read_range<std::uint8_t>(name, first, count);
}
std::vector<std::int32_t> H5Reader::read_i32(const std::string& name) const {
  return state_->read_whole<std::int32_t>(name);
}
std::vector<float> H5Reader::read_f32(const std::string& name) const {
  return state_->read_whole<float>(name);
}

std::string H5Reader::text_attribute(const std::string& name) const {
  const std::lock_guard guard(lock());
  const Handle attribute = state_->open_attribute(name), type(H5Aget_type(attribute.get()), H5Tclose);
  require(H5Tget_class(type.get()) == H5T_STRING && !H5Tis_variable_str(type.get()), ExitCode::io,
          "{}: attribute {} is not a text of fixed length", state_->path.string(), name);
  std::string text(H5Tget_size(type.get()), '\0');
  if (H5Aread(attribute.get(), type.get(), text.data()) < 0) fail_at(state_->path, name, "cannot be read");
  text.resize(std::strlen(text.c_str()));
  return text;
}

std::int64_t H5Reader::int_attribute(const std::string& name) const {
  const std::lock_guard guard(lock());
  const Handle attribute = state_->open_attribute(name), type(H5Aget_type(attribute.get()), H5Tclose);
  require(H5Tequal(type.get(), type_of<std::int64_t>()) > 0, ExitCode::io,
          "{}: attribute {} is not a 64-bit integer", state_->path.string(), name);
  std::int64_t value = 0;
  if (H5Aread(attribute.get(), H5T_NATIVE_INT64, &value) < 0) fail_at(state_->path, name, "cannot be read");
  return value;
}

}  // namespace dex
