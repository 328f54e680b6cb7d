// The work of a task on its data: it writes every element of a buffer, or reads every element.
//
// Memory limits the speed of both, not arithmetic. The numbers follow from a seed. The checksum is a weighted sum: the
// weight of an element depends on its block of 4096 elements and on its index modulo 8. So a part that is missing, old,
// torn or at the wrong place changes the checksum. The checksum has a closed form, by which ../verify.rs computes the
// expected value without the work.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace synth {

inline constexpr std::uint64_t step = 0x9E3779B97F4A7C15ULL;
inline constexpr std::size_t block = 4096;  // elements in a block
inline constexpr std::size_t lanes = 8;

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a ^ (b + step + (a << 6) + (a >> 2));
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

[[gnu::noinline]] inline void fill(std::uint64_t* v, std::size_t n, std::uint64_t seed) {
  for (std::size_t i = 0; i < n; ++i) v[i] = seed + i * step;
}

[[gnu::noinline]] inline std::uint64_t checksum(const std::uint64_t* v, std::size_t n) {
  std::uint64_t total = 0;
  for (std::size_t at = 0, b = 0; at < n; at += block, ++b) {
    const std::size_t m = std::min(block, n - at);
    std::uint64_t lane[lanes] = {};
    std::size_t i = 0;
    for (; i + lanes <= m; i += lanes) {
      for (std::size_t l = 0; l < lanes; ++l) lane[l] += v[at + i + l];
    }
    for (; i < m; ++i) lane[i % lanes] += v[at + i];
    std::uint64_t sum = 0;
    for (std::size_t l = 0; l < lanes; ++l) sum += lane[l] * (2 * l + 1);
    total += sum * (2 * b + 1);
  }
  return total;
}

}  // namespace synth
