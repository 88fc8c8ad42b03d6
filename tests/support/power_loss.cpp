#include "tests/support/power_loss.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>

namespace dex::test {

namespace fs = std::filesystem;

namespace {

std::string parent_of(const std::string& path) { return path.substr(0, path.rfind('/')); }
std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

void put(std::string& bytes, std::uint64_t offset, std::string_view piece) {
  if (bytes.size() < offset + piece.size()) bytes.resize(offset + piece.size());
  std::copy(piece.begin(), piece.end(), bytes.begin() + std::ptrdiff_t(offset));
}

}  // namespace

Disk::Disk(const fs::path& root) : root_(root.string()), top_(std::make_shared<Node>()) {
  top_->directory = true;
}

Disk::NodePtr Disk::find(const std::string& path) const {
  if (path == root_) return top_;
  const NodePtr parent = find(parent_of(path));
  const auto found = parent->now.find(name_of(path));
  if (found == parent->now.end()) throw std::logic_error(path + " was used before it was made");
  return found->second;
}

void Disk::change(const std::string& path, Name change) {
  Node& directory = *find(parent_of(path));
  if (!change.gone.empty()) directory.now.erase(change.gone);
  if (!change.here.empty()) directory.now[change.here] = change.node;
  directory.unsynced_names.push_back(std::move(change));
}

void Disk::apply(const FileCall& call) {
  switch (call.kind) {
    case FileCall::open: {
      if (call.path != root_ && !find(parent_of(call.path))->now.contains(name_of(call.path)))
        change(call.path, {"", name_of(call.path), std::make_shared<Node>()});
      open_[call.file] = find(call.path);
      if (call.truncates) open_[call.file]->unsynced_data.push_back({true, 0, ""});
      return;
    }
    case FileCall::write:
      return open_.at(call.file)->unsynced_data.push_back({false, call.offset, call.bytes});
    case FileCall::resize:
      return open_.at(call.file)->unsynced_data.push_back({true, call.offset, ""});
    case FileCall::sync: {
      Node& node = *open_.at(call.file);
      for (const Data& data : node.unsynced_data)
        data.resize ? node.bytes.resize(data.offset) : put(node.bytes, data.offset, data.bytes);
      node.unsynced_data.clear();
      node.unsynced_names.clear();
      node.names = node.now;
      return;
    }
    case FileCall::rename: {
      const NodePtr node = find(call.path);
      if (parent_of(call.path) != parent_of(call.target))
        throw std::logic_error("a rename across directories: " + call.path);
      return change(call.target, {name_of(call.path), name_of(call.target), node});
    }
    case FileCall::make_directory: {
      auto node = std::make_shared<Node>();
      node->directory = true;
      return change(call.path, {"", name_of(call.path), node});
    }
    case FileCall::remove:
      return change(call.path, {name_of(call.path), "", nullptr});
    case FileCall::close:
    case FileCall::note:
      return;
  }
}

void Disk::restore(const fs::path& directory, double keep, std::mt19937& random) const {
  restore(*top_, directory, keep, random);
}

void Disk::restore(const Node& node, const fs::path& path, double keep, std::mt19937& random) {
  const auto kept = [&] { return std::uniform_real_distribution<>(0, 1)(random) < keep; };
  if (node.directory) {
    fs::create_directory(path);
    auto names = node.names;
    for (const Name& change : node.unsynced_names) {
      if (!kept()) continue;
      if (!change.gone.empty()) names.erase(change.gone);
      if (!change.here.empty()) names[change.here] = change.node;
    }
    for (const auto& [name, child] : names) restore(*child, path / name, keep, random);
    return;
  }
  std::string bytes = node.bytes;
  for (const Data& data : node.unsynced_data) {
    if (data.resize) {
      if (kept()) bytes.resize(data.offset);
    } else if (kept()) {
      put(bytes, data.offset, data.bytes);
    } else if (kept()) {  // its size or a first part is there
      put(bytes, data.offset, std::string(data.bytes.size(), '\0'));
      put(bytes, data.offset, std::string_view(data.bytes).substr(0, random() % data.bytes.size()));
    }
  }
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace dex::test
