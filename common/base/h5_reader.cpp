#include "common/base/h5.h"

#include <hdf5.h>

#include <cstring>
#include <utility>

#include "common/base/error.h"
#include "common/base/h5_handle.h"

namespace dex {

namespace fs = std::filesystem;
using h5::fail_at, h5::Handle, h5::lock, h5::type_of;

namespace {

// A file's digest says nothing of bytes that lie elsewhere, and filters of others' run code of
// theirs. Our own files have neither.
void require_own_data(const fs::path& path, const std::string& name, const Handle& set) {
  const Handle list(H5Dget_create_plist(set.get()), H5Pclose);
  const auto check = [&](bool holds, const char* what) {
    require(holds, ExitCode::io, "{}: data set {} {}; wanted its elements in the file itself",
            path.string(), name, what);
  };
  check(H5Pget_external_count(list.get()) == 0, "lies in other files (external storage)");
  const H5D_layout_t layout = H5Pget_layout(list.get());
  check(layout != H5D_VIRTUAL, "is put together from other data sets (a virtual one)");
  check(layout == H5D_CHUNKED || layout == H5D_CONTIGUOUS || layout == H5D_COMPACT,
        "is laid out in a way that is not known");
  constexpr H5Z_filter_t kFirstForeign = 256;  // below are the library's own
  for (int i = 0, filters = H5Pget_nfilters(list.get()); i < filters; ++i) {
    unsigned flags = 0;
    std::size_t values = 0;
    const H5Z_filter_t filter =
        H5Pget_filter2(list.get(), unsigned(i), &flags, &values, nullptr, 0, nullptr, nullptr);
    check(filter >= 0 && filter < kFirstForeign, "has a filter that is not HDF5's own");
  }
}

// Elements that were never written would be read as zeros.
void require_no_hole(const fs::path& path, const std::string& name, const Handle& set,
                     const std::vector<hsize_t>& shape) {
  const Handle list(H5Dget_create_plist(set.get()), H5Pclose);
  if (H5Pget_layout(list.get()) != H5D_CHUNKED) return;  // elements() compares the bytes
  std::vector<hsize_t> chunk(shape.size());
  if (H5Pget_chunk(list.get(), int(chunk.size()), chunk.data()) != int(chunk.size()))
    fail_at(path, name, "has chunks of another rank");
  hsize_t wanted = 1, seen = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const hsize_t across = shape[i] / chunk[i] + (shape[i] % chunk[i] != 0);
    wanted = across && wanted > UINT64_MAX / across ? UINT64_MAX : wanted * across;
  }
  const Handle space(H5Dget_space(set.get()), H5Sclose);
  if (wanted > 0 && H5Dget_num_chunks(set.get(), space.get(), &seen) < 0)
    fail_at(path, name, "does not say which chunks it has");
  require(seen == wanted, ExitCode::io, "{}: data set {} has {} of its {} chunks: there is a hole",
          path.string(), name, seen, wanted);
}

herr_t add_link(hid_t, const char* name, const H5L_info_t* info, void* links) {
  static_cast<std::vector<std::pair<std::string, H5L_type_t>>*>(links)->emplace_back(name,
                                                                                     info->type);
  return 0;
}

}  // namespace

struct H5Reader::State {
  fs::path path;
  Handle file;
  std::vector<std::string> names;

  ~State() {
    const std::lock_guard guard(lock());
    file.close();
  }

  // What the root group holds, with nothing in it that leads out of the file.
  void list() {
    std::vector<std::pair<std::string, H5L_type_t>> links;
    if (H5Literate(file.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, add_link, &links) < 0)
      fail_at(path, "/", "cannot be listed");
    for (const auto& [name, type] : links) {
      require(type == H5L_TYPE_HARD, ExitCode::io,
              "{}: {} is a {} link; wanted a data set of the file itself", path.string(), name,
              type == H5L_TYPE_SOFT       ? "soft"
              : type == H5L_TYPE_EXTERNAL ? "external"
                                          : "user-defined");
      const Handle set = open(name);
      require_own_data(path, name, set);
      require_no_hole(path, name, set, shape(set, name));
      names.push_back(name);
    }
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

  // Checks the stored type, and what elements() below does.
  template <typename T>
  hsize_t elements(const Handle& set, const std::string& name) const {
    const Handle type(H5Dget_type(set.get()), H5Tclose);
    require(H5Tequal(type.get(), type_of<T>()) > 0, ExitCode::io,
            "{}: data set {} has elements of {} bytes of another type than the {} bytes wanted",
            path.string(), name, H5Tget_size(type.get()), sizeof(T));
    return elements(set, name, sizeof(T));
  }

  // Checks the claimed number of elements against the bytes that are really there.
  hsize_t elements(const Handle& set, const std::string& name, std::size_t size) const {
    hsize_t total = 1;
    for (hsize_t extent : shape(set, name))
      total = extent && total > UINT64_MAX / extent ? UINT64_MAX : total * extent;
    const hsize_t stored = H5Dget_storage_size(set.get()) / size;
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

  // Whatever its type: the library compares the checksums.
  void read_through(const std::string& name) const {
    const Handle set = open(name), type(H5Dget_type(set.get()), H5Tclose);
    const hsize_t count = elements(set, name, H5Tget_size(type.get()));
    std::vector<std::byte> bytes(count * H5Tget_size(type.get()));
    if (H5Tdetect_class(type.get(), H5T_VLEN) > 0 || H5Tis_variable_str(type.get()) > 0)
      fail(ExitCode::io, "{}: data set {} has elements of no fixed size", path.string(), name);
    if (!bytes.empty() &&
        H5Dread(set.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()) < 0)
      fail_at(path, name, "cannot be read");
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
  state_->list();
}

H5Reader::~H5Reader() = default;

std::vector<std::string> H5Reader::names() const { return state_->names; }

void H5Reader::read_through() const {
  const std::lock_guard guard(lock());
  for (const std::string& name : state_->names) state_->read_through(name);
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
