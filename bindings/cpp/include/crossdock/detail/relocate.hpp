// Moving elements to a new block. The old block stays whole until the container points to the new one, so a kill in
// between leaves the old elements as they were.
#pragma once

#include <crossdock/construct.hpp>
#include <crossdock/detail/reflect.hpp>

#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

namespace crossdock::detail {

/// Tells whether T has a member `relocate_to(T*) const`, which writes a copy of the object's words at another address,
/// so that the copy points to the same data.
template <class T>
concept relocates_itself = requires(const T& from, T* to) { from.relocate_to(to); };

template <class T>
consteval bool relocatable() {
  if constexpr (std::is_trivially_copyable_v<T> || relocates_itself<T>) {
    return true;
  } else if constexpr (array_like<T>) {
    return relocatable<typename element_of<T>::type>();
  } else if constexpr (pair_like<T>) {
    return relocatable<typename T::first_type>() && relocatable<typename T::second_type>();
  } else if constexpr (std::is_class_v<T> && std::is_aggregate_v<T> && !std::is_empty_v<T>) {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (relocatable<field_type<T, I>>() && ...);
    }(std::make_index_sequence<field_count<T>>{});
  } else {
    return false;
  }
}

/// Moves one object. `place` is raw memory, in which the object lies afterwards. The bytes at `from` are then no
/// object any more, and need no destructor.
template <class T>
void relocate(const T* from, const T* place) noexcept {
  T* to = const_cast<T*>(place);  // the key in a map's pair is const, but `place` is still raw memory
  if constexpr (std::is_trivially_copyable_v<T>) {
    std::memcpy(static_cast<void*>(to), static_cast<const void*>(from), sizeof(T));
  } else if constexpr (relocates_itself<T>) {
    from->relocate_to(to);
  } else if constexpr (array_like<T>) {
    for (std::size_t i = 0; i < std::size(*from); ++i) relocate(&(*from)[i], &(*to)[i]);
  } else if constexpr (pair_like<T>) {
    relocate(std::addressof(from->first), std::addressof(to->first));
    relocate(std::addressof(from->second), std::addressof(to->second));
  } else {
    auto source = tie_fields(*from);
    auto target = tie_fields(*to);
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      using boost::pfr::detail::sequence_tuple::get;
      (relocate(std::addressof(get<I>(source)), std::addressof(get<I>(target))), ...);
    }(std::make_index_sequence<field_count<T>>{});
  }
}

/// Moves all `n` elements to the new block.
template <class T>
void relocate_n(const T* from, std::size_t n, T* to) noexcept {
  if constexpr (std::is_trivially_copyable_v<T>) {
    if (n != 0) std::memcpy(static_cast<void*>(to), static_cast<const void*>(from), n * sizeof(T));
  } else {
    for (std::size_t i = 0; i < n; ++i) relocate(from + i, to + i);
  }
}

}  // namespace crossdock::detail
