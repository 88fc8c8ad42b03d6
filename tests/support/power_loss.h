// What a disk may hold after a power cut: recorded file operations, replayed with every freedom
// that a file system has. Data of a file is safe once the file was synced, a name once its
// directory was; of what was not, any part may be there.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/support/file_faults.h"

namespace dex::test {

class Disk {
 public:
  // An empty directory, whose path in the records is `root`.
  explicit Disk(const std::filesystem::path& root);

  void apply(const FileCall& call);

  // One of the states a cut at this moment may leave, as a directory. `keep` is the chance of an
  // operation that was not synced to be there all the same; writes may also be there in part.
  void restore(const std::filesystem::path& directory, double keep, std::mt19937& random) const;

 private:
  struct Node;
  using NodePtr = std::shared_ptr<Node>;
  struct Name {  // one change of names in a directory
    std::string gone, here;
    NodePtr node;  // what `here` names now
  };
  struct Data {
    bool resize;
    std::uint64_t offset;
    std::string bytes;
  };
  struct Node {
    bool directory = false;
    std::string bytes;                     // safe ones
    std::map<std::string, NodePtr> names;  // safe ones
    std::map<std::string, NodePtr> now;    // as the running program sees them
    std::vector<Name> unsynced_names;
    std::vector<Data> unsynced_data;
  };

  NodePtr find(const std::string& path) const;
  void change(const std::string& path, Name change);
  static void restore(const Node& node, const std::filesystem::path& path, double keep,
                      std::mt19937& random);

  std::string root_;
  NodePtr top_;
  std::map<int, NodePtr> open_;
};

}  // namespace dex::test
