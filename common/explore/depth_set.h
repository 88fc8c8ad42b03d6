// The explored depth set X = {d_0 < ... < d_{K-1} = L} and the stages between its depths (paper,
// Definition 4).
#pragma once
#include <string>
#include <vector>

namespace dex {

struct LayerRange {
  int first = 0, last = 0;  // layers first+1 .. last in the paper's counting; indices [first, last)
  int size() const { return last - first; }
};

class DepthSet {
 public:
  // `inner` are the non-final depths, increasing, each in 1 .. num_layers-1; L is added.
  // Error(usage) otherwise.
  DepthSet(std::vector<int> inner, int num_layers);
  // "10,20"; "" gives {L}; a final L is accepted
  static DepthSet parse(const std::string& text, int num_layers);
  static DepthSet uniform(int num_stages, int num_layers);

  int num_stages() const { return depths_.size(); }           // K
  int num_layers() const { return depths_.back(); }           // L
  const std::vector<int>& depths() const { return depths_; }  // d_0 .. d_{K-1}
  int depth(int stage) const { return depths_.at(stage); }
  LayerRange layers(int stage) const;
  int ceiling(int depth) const;  // eq. (6)
  int resolution() const;        // eq. (7)
  std::string text() const;      // "10,20,30"

 private:
  std::vector<int> depths_;
};

}  // namespace dex
