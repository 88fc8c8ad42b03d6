// Keys laid so that lanes are keys: a block of them turned into columns. Compiled once per
// instruction set.
#if defined(DEX_KERNELS_KEY_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEX_KERNELS_KEY_COLUMNS_INL_H_
#undef DEX_KERNELS_KEY_COLUMNS_INL_H_
#else
#define DEX_KERNELS_KEY_COLUMNS_INL_H_
#endif

#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dex::HWY_NAMESPACE {

constexpr int kLanes = hn::MaxLanes(Floats());
constexpr int kBlock = 2 * kLanes;  // keys of a block
template <class T>
constexpr int kPiece = 16 / sizeof(T);  // elements that are moved together

using Words = hn::ScalableTag<std::uint32_t>;

// 16 bytes at `offset` elements into each of keys[0], keys[4], keys[8], ...: one per 128 bits of
// the vector.
template <class D, class T>
HWY_INLINE hn::Vec<D> every_fourth(D d, const T* const* keys, int offset) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(keys[0] + offset);
    return hn::BitCast(d, hn::LoadU(hn::Full128<std::uint8_t>(), bytes));
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, every_fourth(half, keys + hn::MaxLanes(half), offset),
                       every_fourth(half, keys, offset));
  }
}

// Element offset + i of kLanes keys becomes columns[i * kBlock ..], for one piece.
template <class T>
HWY_INLINE void write_piece(const T* const* keys, int offset, float* columns) {
  const Floats d;
  const Words words;
  const hn::Repartition<std::uint64_t, Words> pairs;
  const auto a = every_fourth(words, keys, offset), b = every_fourth(words, keys + 1, offset);
  const auto c = every_fourth(words, keys + 2, offset), e = every_fourth(words, keys + 3, offset);
  const auto ab_low = hn::BitCast(pairs, hn::InterleaveLower(words, a, b));
  const auto ce_low = hn::BitCast(pairs, hn::InterleaveLower(words, c, e));
  const auto ab_high = hn::BitCast(pairs, hn::InterleaveUpper(words, a, b));
  const auto ce_high = hn::BitCast(pairs, hn::InterleaveUpper(words, c, e));
  const auto write = [&](int word, auto v) HWY_ATTR {
    const auto bits = hn::BitCast(words, v);
    if constexpr (sizeof(T) == 4) {
      hn::Store(hn::BitCast(d, bits), d, columns + word * kBlock);
    } else {
      hn::Store(hn::BitCast(d, hn::ShiftLeft<16>(bits)), d, columns + 2 * word * kBlock);
      hn::Store(hn::BitCast(d, hn::And(bits, hn::Set(words, 0xffff0000u))), d,
                columns + (2 * word + 1) * kBlock);
    }
  };
  write(0, hn::InterleaveLower(pairs, ab_low, ce_low));
  write(1, hn::InterleaveUpper(pairs, ab_low, ce_low));
  write(2, hn::InterleaveLower(pairs, ab_high, ce_high));
  write(3, hn::InterleaveUpper(pairs, ab_high, ce_high));
}

// columns[i * kBlock + k] = element i of key k. `columns` is aligned and has room for size rounded
// up to a piece; nothing of a key is read beyond `size`.
template <class T>
void write_columns(const T* const (&keys)[kBlock], int size, float* columns) {
  const int whole = size / kPiece<T> * kPiece<T>;
  for (int at = 0; at < whole; at += kPiece<T>)
    for (int v = 0; v < kBlock; v += kLanes) write_piece(keys + v, at, columns + at * kBlock + v);
  if (whole == size) return;
  T rest[kBlock][kPiece<T>] = {};
  const T* padded[kBlock];
  for (int k = 0; k < kBlock; ++k) {
    std::memcpy(rest[k], keys[k] + whole, std::size_t(size - whole) * sizeof(T));
    padded[k] = rest[k];
  }
  for (int v = 0; v < kBlock; v += kLanes) write_piece(padded + v, 0, columns + whole * kBlock + v);
}

}  // namespace dex::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
