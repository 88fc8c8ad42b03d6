#include "common/base/foreign_file.h"

#include <algorithm>
#include <cctype>

namespace dex {
namespace {

struct Mark {
  std::string_view start;  // lower case
  std::string_view hint;
};

constexpr std::string_view kWebPage =
    "it is a web page (an error or sign-in page saved in place of the file): download it again";
constexpr Mark kMarks[] = {
    {"version https://git-lfs",
     "it is a git-lfs pointer, not the file itself: fetch it with git lfs pull"},
    {"# xet version", "it is a Xet pointer, not the file itself: download the file it stands for"},
    {"<!doctype", kWebPage},
    {"<html", kWebPage},
    {"<?xml", kWebPage},
    {"<head", kWebPage},
    {"gguf", "it is a GGUF file: convert it to the Hugging Face layout first"},
    {"pk\x03\x04", "it is a zip archive, as torch.save writes: convert it to safetensors first"},
    {"\x1f\x8b", "it is compressed with gzip: unpack it first"},
    {"\x89hdf\r\n", "it is an HDF5 file"},
};

}  // namespace

std::string foreign_file_hint(std::string_view start) {
  if (start.starts_with("\xef\xbb\xbf")) start.remove_prefix(3);
  while (!start.empty() && (start.front() == ' ' || start.front() == '\n' ||
                            start.front() == '\r' || start.front() == '\t'))
    start.remove_prefix(1);
  std::string lower(start.substr(0, 32));
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  for (const Mark& mark : kMarks)
    if (lower.starts_with(mark.start)) return std::string(mark.hint);
  return "";
}

}  // namespace dex
