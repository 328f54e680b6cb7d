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

/// Works like resolve(), for a word that is known not to be null.
inline void* resolve_unchecked(const relative_word& word) noexcept {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(&word) + static_cast<std::uintptr_t>(word));
}

/// The value that the word at the address `place` must have in order to point to `target`.
inline relative_word relative(const void* place, const void* target) noexcept {
  return target ? static_cast<relative_word>(reinterpret_cast<std::uintptr_t>(target) - reinterpret_cast<std::uintptr_t>(place)) : relative_word::null;
}

/// Keeps the stores before and after this call in their order, for a member that reads the memory after this process
/// was killed. The CPU makes stores visible in the order of the program, so only the compiler must be kept from
/// reordering them.
inline void in_order() noexcept { asm volatile("" ::: "memory"); }

}  // namespace crossdock::detail
