#include "common/base/h5.h"

#include <hdf5.h>

#include <cstring>

#include "common/base/error.h"
#include "common/base/h5_handle.h"

namespace dex {

namespace fs = std::filesystem;
using h5::fail_at, h5::Handle, h5::lock, h5::type_of;

struct H5Reader::State {
  fs::path path;
  Handle file;

  ~State() {
    const std::lock_guard guard(lock());
    file.close();
  }

  Handle open(const std::string& name) const {
    const Handle access = h5::data_set_access();
    Handle set(H5Dopen2(file.get(), name.c_str(), access.get()), H5Dclose);
    if (!set.good()) fail_at(path, name, "cannot be opened");
    return set;
  }

  std::vector<hsize_t> shape(const Handle& set, const std::string& name) const {
    const Handle space(H5Dget_space(set.get()), H5Sclose);
    const int rank = H5Sget_simple_extent_ndims(space.get());
    if (rank < 0) fail_at(path, name, "has no shape");
    std::vector<hsize_t> sizes(rank);
    H5Sget_simple_extent_dims(space.get(), sizes.data(), nullptr);
    return sizes;
  }

  // Checks the stored type, and the claimed number of elements against the bytes that are really
  // there.
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
    require(total <= stored, ExitCode::io, "{}: data set {} claims {} elements and stores {}",
            path.string(), name, total, stored);
    return total;
  }

  template <typename T>
  std::vector<T> read_range(const std::string& name, hsize_t first, hsize_t count) const {
    const std::lock_guard guard(lock());
    const Handle set = open(name);
    const hsize_t total = elements<T>(set, name);
    require(first <= total && count <= total - first, ExitCode::io,
            "{}: data set {} has {} elements, wanted {} from {}", path.string(), name, total, count,
            first);
    require(shape(set, name).size() == 1, ExitCode::io, "{}: data set {} is not one-dimensional",
            path.string(), name);
    std::vector<T> values(count);
    if (count == 0) return values;
    const Handle stored(H5Dget_space(set.get()), H5Sclose),
        memory(H5Screate_simple(1, &count, nullptr), H5Sclose);
    H5Sselect_hyperslab(stored.get(), H5S_SELECT_SET, &first, nullptr, &count, nullptr);
    if (H5Dread(set.get(), type_of<T>(), memory.get(), stored.get(), H5P_DEFAULT, values.data()) <
        0)
      fail_at(path, name, "cannot be read");
    return values;
  }

  template <typename T>
  std::vector<T> read_whole(const std::string& name) const {
    const std::lock_guard guard(lock());
    const Handle set = open(name);
    std::vector<T> values(elements<T>(set, name));
    if (!values.empty() &&
        H5Dread(set.get(), type_of<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0)
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
  h5::start_library();
  const Handle access = h5::file_access();
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
  const Handle attribute = state_->open_attribute(name),
               type(H5Aget_type(attribute.get()), H5Tclose);
  require(H5Tget_class(type.get()) == H5T_STRING && !H5Tis_variable_str(type.get()), ExitCode::io,
          "{}: attribute {} is not a text of fixed length", state_->path.string(), name);
  std::string text(H5Tget_size(type.get()), '\0');
  if (H5Aread(attribute.get(), type.get(), text.data()) < 0)
    fail_at(state_->path, name, "cannot be read");
  text.resize(std::strlen(text.c_str()));
  return text;
}

std::int64_t H5Reader::int_attribute(const std::string& name) const {
  const std::lock_guard guard(lock());
  const Handle attribute = state_->open_attribute(name),
               type(H5Aget_type(attribute.get()), H5Tclose);
  require(H5Tequal(type.get(), type_of<std::int64_t>()) > 0, ExitCode::io,
          "{}: attribute {} is not a 64-bit integer", state_->path.string(), name);
  std::int64_t value = 0;
  if (H5Aread(attribute.get(), H5T_NATIVE_INT64, &value) < 0)
    fail_at(state_->path, name, "cannot be read");
  return value;
}

}  // namespace dex
