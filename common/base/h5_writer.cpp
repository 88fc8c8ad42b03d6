#include "common/base/h5.h"

#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/h5_handle.h"

namespace dex {

namespace fs = std::filesystem;
using h5::fail_at, h5::Handle, h5::lock, h5::type_of;

namespace {

// one sample of usual length touches one or two chunks
constexpr std::uint64_t kChunkElements = 16384;

// Times stay out of the file: equal content gives equal bytes.
Handle data_set_properties(const std::vector<hsize_t>& chunk) {
  Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_chunk(list.get(), int(chunk.size()), chunk.data());
  H5Pset_fletcher32(list.get());
  H5Pset_obj_track_times(list.get(), false);
  return list;
}

// Halves the first dimension that still has two elements until the chunk is small: long runs of the
// last one stay whole.
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
    if (H5Dwrite(set.get(), type_of<T>(), memory.get(), stored.get(), H5P_DEFAULT, values.data()) <
        0)
      fail_at(path, name, "cannot be written");
    length = total;
  }

  Handle create_growing(const std::string& name, hid_t type) {
    const hsize_t none = 0, unlimited = H5S_UNLIMITED;
    return create(name, type, Handle(H5Screate_simple(1, &none, &unlimited), H5Sclose),
                  {kChunkElements});
  }

  Handle create(const std::string& name, hid_t type, const Handle& space,
                const std::vector<hsize_t>& chunk) {
    const Handle properties = data_set_properties(chunk), access = h5::data_set_access();
    Handle set(H5Dcreate2(file.get(), name.c_str(), type, space.get(), H5P_DEFAULT,
                          properties.get(), access.get()),
               H5Dclose);
    if (!set.good()) fail_at(path, name, "cannot be created");
    return set;
  }

  template <typename T>
  void write(const std::string& name, std::span<const T> values,
             const std::vector<std::uint64_t>& shape) {
    const std::lock_guard guard(lock());
    require(file.good(), ExitCode::bug, "{}: written to after close()", path.string());
    const std::vector<hsize_t> sizes(shape.begin(), shape.end());
    const auto elements =
        std::accumulate(sizes.begin(), sizes.end(), hsize_t{1}, std::multiplies<>());
    require(!sizes.empty() && elements == values.size(), ExitCode::bug,
            "{}: data set {} has {} values for {} places", path.string(), name, values.size(),
            elements);
    const Handle space(H5Screate_simple(int(sizes.size()), sizes.data(), nullptr), H5Sclose);
    Handle set = create(name, type_of<T>(), space, chunk_of(sizes));
    if (H5Dwrite(set.get(), type_of<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0 ||
        set.close() < 0)
      fail_at(path, name, "cannot be written");
  }

  void attribute(const std::string& name, hid_t type, const void* value) {
    require(file.good(), ExitCode::bug, "{}: written to after close()", path.string());
    const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
    Handle set(H5Acreate2(file.get(), name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT),
               H5Aclose);
    if (!set.good() || H5Awrite(set.get(), type, value) < 0 || set.close() < 0)
      fail_at(path, name, "cannot be written as an attribute");
  }
};

H5Writer::H5Writer(const fs::path& path) : state_(std::make_unique<State>()) {
  state_->path = path;
  state_->temporary = path.string() + ".tmp-" + std::to_string(getpid());
  const std::lock_guard guard(lock());
  h5::start_library();
  const Handle access = h5::file_access(), creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation.get(), false);
  state_->file = Handle(
      H5Fcreate(state_->temporary.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), H5Fclose);
  if (!state_->file.good()) fail_at(path, "/", "cannot be created");
}

H5Writer::~H5Writer() = default;

void H5Writer::append(const std::string& name, std::span<const std::uint32_t> v) {
  state_->append(name, v);
}
void H5Writer::append(const std::string& name, std::span<const std::uint64_t> v) {
  state_->append(name, v);
}
void H5Writer::append(const std::string& name, std::span<const std::uint8_t> v) {
  state_->append(name, v);
}

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

}  // namespace dex
