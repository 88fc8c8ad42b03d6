// HDF5 files that others may hand us: whatever leads out of the file, or was never written, is
// refused by the object's name.
#include <hdf5.h>

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/h5.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"

using namespace dex;
namespace fs = std::filesystem;
using test::TempDir;

namespace {

constexpr hsize_t kChunk = 8, kCount = 20;

// A file as the writer leaves it, but for what `change` does to it afterwards.
fs::path altered_file(const TempDir& dir, const std::function<void(hid_t file)>& change) {
  const fs::path path = dir / "a.h5";
  H5Writer writer(path);
  const std::vector<std::uint32_t> ids(kCount, 7);
  writer.append("tokens", ids);
  writer.attribute("format", std::string("some table 1"));
  writer.close();
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, access);
  REQUIRE(file >= 0);
  change(file);
  H5Fclose(file);
  H5Pclose(access);
  return path;
}

// A data set "other" of kCount numbers with these properties; `write` gives it values.
void add_set(hid_t file, const std::function<void(hid_t properties)>& set, bool write = false,
             const char* name = "other") {
  const hid_t list = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &kCount, nullptr);
  set(list);
  const hid_t made = H5Dcreate2(file, name, H5T_STD_U32LE, space, H5P_DEFAULT, list, H5P_DEFAULT);
  REQUIRE(made >= 0);
  const std::vector<std::uint32_t> values(kCount, 3);
  if (write)
    REQUIRE(H5Dwrite(made, H5T_NATIVE_UINT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
  H5Dclose(made);
  H5Sclose(space);
  H5Pclose(list);
}

// One row of values, `first` .. `first + count`, of a chunked data set.
void add_partly_written(hid_t file, hsize_t first, hsize_t count) {
  add_set(file, [](hid_t list) {
    H5Pset_chunk(list, 1, &kChunk);
    H5Pset_fletcher32(list);
  });
  const hid_t set = H5Dopen2(file, "other", H5P_DEFAULT), stored = H5Dget_space(set),
              memory = H5Screate_simple(1, &count, nullptr);
  const std::vector<std::uint32_t> values(count, 3);
  H5Sselect_hyperslab(stored, H5S_SELECT_SET, &first, nullptr, &count, nullptr);
  REQUIRE(H5Dwrite(set, H5T_NATIVE_UINT32, memory, stored, H5P_DEFAULT, values.data()) >= 0);
  H5Sclose(memory);
  H5Sclose(stored);
  H5Dclose(set);
}

struct Foreign {
  std::string what;
  std::vector<std::string> words;
  std::function<void(hid_t)> change;
};

std::vector<Foreign> foreign_files(const std::string& secret) {
  return {
      {"external storage",
       {"other", "lies in other files"},
       [=](hid_t file) {
         add_set(file, [&](hid_t list) { H5Pset_external(list, secret.c_str(), 0, kCount * 4); });
       }},
      {"a virtual data set",
       {"other", "virtual"},
       [=](hid_t file) {
         add_set(file, [&](hid_t list) {
           const hid_t space = H5Screate_simple(1, &kCount, nullptr);
           H5Pset_virtual(list, space, secret.c_str(), "tokens", space);
           H5Sclose(space);
         });
       }},
      {"a virtual data set of its own file",
       {"other", "virtual"},
       [](hid_t file) {
         add_set(file, [](hid_t list) {
           const hid_t space = H5Screate_simple(1, &kCount, nullptr);
           H5Pset_virtual(list, space, ".", "tokens", space);
           H5Sclose(space);
         });
       }},
      {"an external link",
       {"other", "external link"},
       [=](hid_t file) {
         H5Lcreate_external(secret.c_str(), "tokens", file, "other", H5P_DEFAULT, H5P_DEFAULT);
       }},
      {"a soft link",
       {"other", "soft link"},
       [](hid_t file) { H5Lcreate_soft("/tokens", file, "other", H5P_DEFAULT, H5P_DEFAULT); }},
      {"a soft link to nothing",
       {"other", "soft link"},
       [](hid_t file) { H5Lcreate_soft("/none", file, "other", H5P_DEFAULT, H5P_DEFAULT); }},
      {"a name that is a soft link to an external one",
       {"external link"},
       [=](hid_t file) {
         H5Ldelete(file, "tokens", H5P_DEFAULT);
         H5Lcreate_external(secret.c_str(), "tokens", file, "far", H5P_DEFAULT, H5P_DEFAULT);
         H5Lcreate_soft("/far", file, "tokens", H5P_DEFAULT, H5P_DEFAULT);
       }},
      {"a group",
       {"other"},
       [](hid_t file) {
         H5Gclose(H5Gcreate2(file, "other", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
       }},
      {"a type",
       {"other"},
       [](hid_t file) {
         const hid_t type = H5Tcopy(H5T_STD_I32LE);
         H5Tcommit2(file, "other", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
         H5Tclose(type);
       }},
      {"no chunk written",
       {"other", "0 of its 3 chunks", "hole"},
       [](hid_t file) { add_set(file, [](hid_t list) { H5Pset_chunk(list, 1, &kChunk); }); }},
      {"a hole at the start",
       {"other", "2 of its 3 chunks", "hole"},
       [](hid_t file) { add_partly_written(file, 8, 12); }},
      {"a hole in the middle",
       {"other", "2 of its 3 chunks", "hole"},
       [](hid_t file) {
         add_partly_written(file, 0, 8);
         const hid_t set = H5Dopen2(file, "other", H5P_DEFAULT), stored = H5Dget_space(set);
         const hsize_t first = 16, count = 4;
         const std::vector<std::uint32_t> values(count, 3);
         const hid_t memory = H5Screate_simple(1, &count, nullptr);
         H5Sselect_hyperslab(stored, H5S_SELECT_SET, &first, nullptr, &count, nullptr);
         H5Dwrite(set, H5T_NATIVE_UINT32, memory, stored, H5P_DEFAULT, values.data());
         H5Sclose(memory);
         H5Sclose(stored);
         H5Dclose(set);
       }},
      // the chunks there hold more bytes than the elements of the data set need
      {"a hole at the end",
       {"other", "2 of its 3 chunks", "hole"},
       [](hid_t file) { add_partly_written(file, 0, 16); }},
  };
}

}  // namespace

TEST_CASE("what leads out of an HDF5 file, or was never written, is refused by name") {
  const TempDir dir;
  const std::string secret = dir.write("secret", std::string(kCount * 4, 's')).string();
  for (const Foreign& foreign : foreign_files(secret)) {
    INFO(foreign.what);
    const fs::path path = altered_file(dir, foreign.change);
    std::vector<std::string> words = foreign.words;
    words.push_back(path.string());
    test::check_refused(ExitCode::io, words, [&] { const H5Reader file(path); });
    test::check_refused(ExitCode::io, words, [&] { H5Reader(path).read_u32("tokens", 0, kCount); });
  }
}

TEST_CASE("data sets in the file itself are read whatever their layout and HDF5's own filters") {
  const TempDir dir;
  const auto chunked = [](hid_t list) { H5Pset_chunk(list, 1, &kChunk); };
  const std::vector<std::function<void(hid_t)>> layouts{
      [](hid_t) {}, [](hid_t list) { H5Pset_layout(list, H5D_COMPACT); }, chunked,
      [&](hid_t list) {
        chunked(list);
        H5Pset_fletcher32(list);
      },
      [&](hid_t list) {
        chunked(list);
        H5Pset_shuffle(list);
      }};
  for (const auto& layout : layouts) {
    const fs::path path =
        altered_file(dir, [&](hid_t file) { add_set(file, layout, /*write=*/true); });
    const H5Reader file(path);
    CHECK(file.names() == std::vector<std::string>{"other", "tokens"});
    CHECK(file.read_u32("other", 0, kCount) == std::vector<std::uint32_t>(kCount, 3));
    CHECK_NOTHROW(file.read_through());
  }
}

TEST_CASE("reading a file through meets every altered element") {
  const TempDir dir;
  const fs::path path = altered_file(dir, [](hid_t) {});
  std::string bytes = read_file(path);
  const std::vector<std::uint32_t> ids(kCount, 7);
  const std::size_t place =
      bytes.find(std::string(reinterpret_cast<const char*>(ids.data()), kCount * 4));
  REQUIRE(place != std::string::npos);
  for (std::size_t i = 0; i < kCount; ++i) {
    std::string altered = bytes;
    altered[place + 4 * i] ^= 1;
    fs::remove(dir / "b.h5");
    const H5Reader file(dir.write("b.h5", altered));
    test::check_refused(ExitCode::io, {"b.h5", "tokens"}, [&] { file.read_through(); });
  }
}
