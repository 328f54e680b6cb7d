// The self-relative words of the shared layouts: address = address of the word + value; 0 is null.
#pragma once

#include <cstdint>

namespace crossdock::detail {

// An enumeration and not std::int64_t, so that the compiler may assume that a store to a user's 64-bit element does not
// change these words. A loop over a vector<std::int64_t> then keeps its address and size in registers.
enum class relative_word : std::int64_t { null = 0 };
enum class count_word : std::uint64_t { zero = 0 };

inline void* resolve(const relative_word& word) noexcept {
  return word == relative_word::null ? nullptr : reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(&word) + static_cast<std::uintptr_t>(word));
}

/// Works as resolve(), for a word that is known not to be null.
inline void* resolve_unchecked(const relative_word& word) noexcept {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(&word) + static_cast<std::uintptr_t>(word));
}

/// The value that the word at `place` needs to point to `target`.
inline relative_word relative(const void* place, const void* target) noexcept {
  return target ? static_cast<relative_word>(reinterpret_cast<std::uintptr_t>(target) - reinterpret_cast<std::uintptr_t>(place)) : relative_word::null;
}

/// Keeps the order of this process's writes for a member that reads them after this process was killed. The CPU makes
/// whole stores visible in order, so only the compiler must be told.
inline void in_order() noexcept { asm volatile("" ::: "memory"); }

}  // namespace crossdock::detail
