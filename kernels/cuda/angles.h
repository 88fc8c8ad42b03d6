// Sine and cosine of a rotary angle, the same bits on host and device, and right far from zero:
// reduced to a quarter turn and summed in double, rounded to float once.
#pragma once
#include <cmath>

#include "kernels/cuda/gpu.h"

namespace dex::cuda {

struct SineCosine {
  float sine, cosine;
};

// Finite angles of less than 2^30.
__host__ __device__ inline SineCosine sine_cosine(float angle) {
  const double wide = angle, turns = rint(wide * 0x1.45f306dc9c883p-1);  // quarter turns
  const double r = fma(-turns, 0x1.1a62633145c07p-54, fma(-turns, 0x1.921fb54442d18p+0, wide)),
               r2 = r * r;
  double s = 0x1.6124613a86d09p-33;  // Taylor's series: the next terms are below 1e-13
  s = fma(s, r2, -0x1.ae64567f544e4p-26);
  s = fma(s, r2, 0x1.71de3a556c734p-19);
  s = fma(s, r2, -0x1.a01a01a01a01ap-13);
  s = fma(s, r2, 0x1.1111111111111p-7);
  s = fma(s, r2, -0x1.5555555555555p-3);
  s = fma(s * r2, r, r);
  double c = -0x1.93974a8c07c9dp-37;
  c = fma(c, r2, 0x1.1eed8eff8d898p-29);
  c = fma(c, r2, -0x1.27e4fb7789f5cp-22);
  c = fma(c, r2, 0x1.a01a01a01a01ap-16);
  c = fma(c, r2, -0x1.6c16c16c16c17p-10);
  c = fma(c, r2, 0x1.5555555555555p-5);
  c = fma(c, r2, -0.5);
  c = fma(c, r2, 1.0);
  const int quarter = int(turns) & 3;
  const double sine = quarter % 2 ? c : s, cosine = quarter % 2 ? s : c;
  return {float(quarter >= 2 ? -sine : sine),
          float(quarter == 1 || quarter == 2 ? -cosine : cosine)};
}

}  // namespace dex::cuda
