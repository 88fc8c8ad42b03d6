// Altered copies of a file's bytes.
#pragma once
#include <algorithm>
#include <random>
#include <string>

namespace dex::test {

// One to four changes, each of a kind that careless disks, transfers and editors make: a byte or a
// bit, a digit or mark of syntax, a piece gone, doubled or zeroed, a cut, something behind the end.
// Never equal to `whole`.
inline std::string altered(const std::string& whole, std::mt19937& random) {
  const auto below = [&](std::size_t bound) { return random() % bound; };
  std::string bytes = whole;
  for (std::size_t change = 0, changes = 1 + below(4); change < changes || bytes == whole;
       ++change) {
    if (bytes.empty()) return bytes = "x";
    const std::size_t place = below(bytes.size());
    switch (below(8)) {
      case 0:
        bytes[place] = char(random());
        break;
      case 1:
        bytes[place] = char(bytes[place] ^ (1 << below(8)));
        break;
      case 2:
        bytes[place] = "0123456789,:[]{}\"-+.eE"[below(22)];
        break;
      case 3:
        bytes.erase(place, 1 + below(16));
        break;
      case 4:
        bytes.insert(place, bytes.substr(below(bytes.size()), below(40)));
        break;
      case 5:
        std::fill_n(bytes.begin() + std::ptrdiff_t(place),
                    std::min<std::size_t>(bytes.size() - place, 1 + below(512)), '\0');
        break;
      case 6:
        bytes.resize(place);
        break;
      default:
        bytes += std::string(1 + below(100), char(random()));
        break;
    }
  }
  return bytes;
}

}  // namespace dex::test
