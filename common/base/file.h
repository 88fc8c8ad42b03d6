// Whole files, read and written so that a reader never meets half of one.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace dex {

// Throws Error(usage) when the path is missing, Error(io) when it cannot be read.
std::string read_file(const std::filesystem::path& path);

// Writes path under a temporary name beside it, fsyncs, renames, fsyncs the directory. On failure
// nothing is left behind and Error(io) names path and errno.
void write_file(const std::filesystem::path& path, std::string_view bytes);
// laid end to end
void write_file(const std::filesystem::path& path, std::span<const std::string_view> pieces);

// Adds to the end of a file, which is made if absent. On failure it is as long as before.
void append_file(const std::filesystem::path& path, std::string_view bytes);

// Removes what killed processes left of write_file and H5Writer at `path`, which one process writes
// at a time.
void remove_temporaries(const std::filesystem::path& path);

// The steps of write_file for writers that fill the file themselves (HDF5, safetensors).
void sync_file(const std::filesystem::path& path);
void sync_directory(const std::filesystem::path& directory);
// rename, then sync the parent
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

// Puts the directory `from` in the place of `to`, whose content goes. Readers meet the old one or
// the new one whole (where the file system cannot exchange names: for a moment none). The files in
// `from` must be synced.
void replace_directory(const std::filesystem::path& from, const std::filesystem::path& to);

// A writable directory at `path`, made if absent, with its parents: their entries are synced, so
// that what is synced inside is not lost with them. Throws Error(io) naming path and errno.
void make_directory(const std::filesystem::path& path);

}  // namespace dex
