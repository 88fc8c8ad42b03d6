#include <algorithm>

#include "kernels/emulator/block.h"

namespace dex::emulator {
namespace {

template <class T>
T& posted(int lane) {
  return *static_cast<T*>(lane_of_warp(lane).posted);
}
bool came(const Meeting& meeting, int lane) { return (meeting.arrived >> lane & 1) != 0; }

struct Shuffled {
  Shuffle kind;
  int operand, width;
  std::uint64_t value, result;
};

// The lane whose value `lane` gets: itself where the wanted one is outside its segment.
int source_of(const Shuffled& call, int lane) {
  const int first = lane & ~(call.width - 1), last = first + call.width - 1;
  int source = lane;
  switch (call.kind) {
    case Shuffle::from:
      return first + (call.operand & (call.width - 1));
    case Shuffle::up:
      source = lane - call.operand;
      return source < first ? lane : source;
    case Shuffle::down:
      source = lane + call.operand;
      return source > last ? lane : source;
    case Shuffle::exclusive_or:
      source = lane ^ call.operand;
      return source > last ? lane : source;
  }
  return lane;
}

void exchange_values(const Meeting& meeting) {
  for (int i = 0; i < kLanes; ++i) {
    if (!came(meeting, i)) continue;
    auto& mine = posted<Shuffled>(i);
    const int source = source_of(mine, i);
    if (source >= kLanes || !came(meeting, source))
      fail(meeting.site,
           "lane %lld takes the value of lane %lld, which is not in the mask or has exited", i,
           source);
    mine.result = posted<Shuffled>(source).value;
  }
}

struct Vote {
  bool predicate;
  unsigned result;
};

void count_votes(const Meeting& meeting) {
  unsigned votes = 0;
  for (int i = 0; i < kLanes; ++i)
    if (came(meeting, i) && posted<Vote>(i).predicate) votes |= 1u << i;
  for (int i = 0; i < kLanes; ++i)
    if (came(meeting, i)) posted<Vote>(i).result = votes;
}

struct Reduction {
  Reduce kind;
  unsigned value;
};

unsigned combined(Reduce kind, unsigned a, unsigned b) {
  const int sa = int(a), sb = int(b);
  switch (kind) {
    case Reduce::add:
      return a + b;
    case Reduce::min:
      return a < b ? a : b;
    case Reduce::max:
      return a > b ? a : b;
    case Reduce::min_signed:
      return sa < sb ? a : b;
    case Reduce::max_signed:
      return sa > sb ? a : b;
  }
  return a;
}

void reduce_values(const Meeting& meeting) {
  const int first = __builtin_ctz(meeting.arrived);
  const auto [kind, start] = posted<Reduction>(first);
  unsigned result = start;
  for (int i = first + 1; i < kLanes; ++i)
    if (came(meeting, i)) result = combined(kind, result, posted<Reduction>(i).value);
  for (int i = first; i < kLanes; ++i)
    if (came(meeting, i)) posted<Reduction>(i).value = result;
}

void require_whole_warp(const Meeting& meeting, const char* text) {
  if (meeting.arrived != ~0u) fail(meeting.site, text, __builtin_popcount(meeting.arrived));
}

template <class T>
struct Fragments {
  T* d;
  const std::uint32_t *a, *b;
};

// Element `part` of a register that holds 2 or 4.
float element(std::uint32_t reg, int part, float) {
  return __builtin_bit_cast(float, part == 0 ? reg << 16 : reg & 0xffff0000u);
}
std::int32_t element(std::uint32_t reg, int part, std::int32_t) {
  return std::int8_t(reg >> 8 * part & 0xff);
}
float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
std::int32_t multiply_add(std::int32_t a, std::int32_t b, std::int32_t c) {
  return std::int32_t(std::uint32_t(a * b) + std::uint32_t(c));
}

// d += A B with `per` elements in a register: A is 16 x 8 per, in row-major [m][k], B comes as
// [k][n].
template <class T, int per>
void multiply(const Meeting& meeting) {
  require_whole_warp(meeting, "mma by a warp of %lld lanes");
  constexpr int kDepth = 8 * per;
  T a[16][kDepth], b[kDepth][8], d[16][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int g = lane >> 2, t = lane & 3;
    const auto& mine = posted<Fragments<T>>(lane);
    for (int p = 0; p < per; ++p) {
      for (int r = 0; r < 4; ++r)
        a[g + r % 2 * 8][per * t + p + r / 2 * 4 * per] = element(mine.a[r], p, T{});
      for (int r = 0; r < 2; ++r) b[per * t + p + r * 4 * per][g] = element(mine.b[r], p, T{});
    }
    for (int r = 0; r < 4; ++r) d[g + r / 2 * 8][2 * t + r % 2] = mine.d[r];
  }
  for (int m = 0; m < 16; ++m)
    for (int k = 0; k < kDepth; ++k)
      for (int n = 0; n < 8; ++n) d[m][n] = multiply_add(a[m][k], b[k][n], d[m][n]);
  for (int lane = 0; lane < kLanes; ++lane)
    for (int r = 0; r < 4; ++r)
      posted<Fragments<T>>(lane).d[r] = d[(lane >> 2) + r / 2 * 8][2 * (lane & 3) + r % 2];
}

struct Rows {
  const std::uint32_t* row;  // 8 elements of 16 bits
  std::uint32_t* result;
  bool transposed;
};

void load_matrices(const Meeting& meeting) {
  require_whole_warp(meeting, "ldmatrix by a warp of %lld lanes");
  const auto at = [&](int matrix, int row, int column) {
    return posted<Rows>(8 * matrix + row).row[column / 2] >> 16 * (column % 2) & 0xffffu;
  };
  for (int lane = 0; lane < kLanes; ++lane) {
    const int g = lane >> 2, t = lane & 3;
    const Rows& mine = posted<Rows>(lane);
    for (int j = 0; j < 4; ++j)
      mine.result[j] = mine.transposed ? at(j, 2 * t, g) | at(j, 2 * t + 1, g) << 16
                                       : at(j, g, 2 * t) | at(j, g, 2 * t + 1) << 16;
  }
}

}  // namespace

void warp_barrier(unsigned mask, Site site) {
  meet(mask, "__syncwarp", nullptr, nullptr, site, true);
}

std::uint64_t shuffle(Shuffle kind, unsigned mask, std::uint64_t value, int operand, int width,
                      Site site) {
  if (width <= 0 || width > kLanes || (width & (width - 1)) != 0)
    fail(site, "a shuffle of width %lld", width);
  Shuffled call{kind, operand, width, value, 0};
  meet(mask, "a shuffle", &call, exchange_values, site);
  return call.result;
}

unsigned ballot(unsigned mask, bool predicate, const char* name, Site site) {
  Vote vote{predicate, 0};
  meet(mask, name, &vote, count_votes, site);
  return vote.result;
}

unsigned reduce(Reduce kind, unsigned mask, unsigned value, Site site) {
  Reduction call{kind, value};
  meet(mask, "a reduction", &call, reduce_values, site);
  return call.value;
}

void mma_bf16(float* d, const std::uint32_t* a, const std::uint32_t* b, Site site) {
  Fragments<float> call{d, a, b};
  meet(~0u, "mma_16x8x16", &call, multiply<float, 2>, site);
}

void mma_s8(std::int32_t* d, const std::uint32_t* a, const std::uint32_t* b, Site site) {
  Fragments<std::int32_t> call{d, a, b};
  meet(~0u, "mma_s8_16x8x32", &call, multiply<std::int32_t, 4>, site);
}

void ldmatrix(std::uint32_t* r, const std::uint32_t* row, bool transposed, Site site) {
  Rows call{row, r, transposed};
  meet(~0u, "ldmatrix", &call, load_matrices, site);
}

}  // namespace dex::emulator
