#include "launch/inspect/tensor_table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "launch/inspect/inspection.h"

namespace dex {
namespace {

// Numbers that stand between dots become one star.
std::string without_numbers(const std::string& name) {
  std::string pattern;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) {
      return std::isdigit(c);
    });
    pattern += (begin == 0 ? "" : ".") + (number ? "*" : part);
    begin = end + 1;
  }
  return pattern;
}

}  // namespace

TensorTable::TensorTable(const WeightFile& weights) {
  const auto add = [](std::vector<Line>& lines, const Line& tensor) {
    auto line = std::find_if(lines.begin(), lines.end(), [&](const Line& other) {
      return other.name == tensor.name && other.type == tensor.type && other.shape == tensor.shape;
    });
    if (line == lines.end()) line = lines.insert(line, {tensor.name, tensor.type, tensor.shape});
    line->tensors += tensor.tensors;
    line->elements += tensor.elements;
    line->bytes += tensor.bytes;
  };
  std::vector<Line> total;
  for (const auto& [name, tensor] : weights.tensors()) {
    Line line{without_numbers(name),
              name_of(tensor.type),
              fmt::format("[{}]", fmt::join(tensor.shape, ", ")),
              1,
              tensor.bytes.size() / size_of(tensor.type),
              tensor.bytes.size()};
    add(lines_, line);
    line.name = line.shape = "";
    add(types_, line);
    line.type = "";
    add(total, line);
  }
  if (!total.empty()) total_ = total.front();
}

std::string TensorTable::text() const {
  Rows rows{{"tensors", "type", "shape", "count", "elements", "size"}};
  for (const Line& line : lines_)
    rows.push_back({line.name, line.type, line.shape, grouped(line.tensors), grouped(line.elements),
                    bytes_text(line.bytes)});
  for (const Line& line : types_)
    rows.push_back({"all", line.type, "", grouped(line.tensors), grouped(line.elements),
                    bytes_text(line.bytes)});
  return columns(rows);
}

nlohmann::json TensorTable::facts() const {
  nlohmann::json by_type = nlohmann::json::object();
  for (const Line& line : types_)
    by_type[line.type] = {
        {"tensors", line.tensors}, {"elements", line.elements}, {"bytes", line.bytes}};
  return {{"tensors", total_.tensors},
          {"elements", total_.elements},
          {"bytes", total_.bytes},
          {"by_type", by_type}};
}

}  // namespace dex
