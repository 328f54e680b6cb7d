// Tells which types may be put into shared memory: those that mean the same in every process.
#pragma once

#include <crossdock/detail/reflect.hpp>
#include <crossdock/offset_ptr.hpp>

#include <array>
#include <atomic>
#include <complex>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace crossdock {

template <class T>
class allocator;

namespace detail {

template <class T>
consteval bool shareable_fields();

/// Tells whether T is made with an allocator, like the containers and the structs of Listing 4 of the Dhmem paper.
template <class T>
concept takes_allocator = std::is_class_v<T> && (std::is_constructible_v<T, const allocator<void>&> || std::uses_allocator_v<T, allocator<void>>);

/// The element type of an array T[N] or std::array, at any depth; otherwise T itself. The checks below examine one
/// element for the whole array, because examining every element would take the compiler too long.
template <class T>
struct element_of {
  using type = T;
};
template <class T, std::size_t N>
struct element_of<T[N]> : element_of<T> {};
template <class T, std::size_t N>
struct element_of<std::array<T, N>> : element_of<T> {};
template <class T>
concept array_like = !std::is_same_v<typename element_of<T>::type, T>;

template <class T>
consteval bool looks_shareable() {
  if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    return true;
  } else if constexpr (!std::is_class_v<T> || std::is_polymorphic_v<T>) {
    return false;  // pointers, references, unions, and classes with a virtual table
  } else if constexpr (std::is_aggregate_v<T> && !std::is_empty_v<T>) {
    return shareable_fields<T>();
  } else {
    return takes_allocator<T> || std::is_trivially_copyable_v<T>;  // the compiler sees no fields: trust the author
  }
}

}  // namespace detail

/// Specialise this template (as std::true_type or std::false_type) for a class whose members the compiler cannot see.
template <class T>
struct shareable : std::bool_constant<detail::looks_shareable<T>()> {};
template <class T>
struct shareable<const T> : shareable<T> {};
template <class T, std::size_t N>
struct shareable<T[N]> : shareable<T> {};
template <class T, std::size_t N>
struct shareable<std::array<T, N>> : shareable<T> {};
template <class T>
struct shareable<std::complex<T>> : shareable<T> {};
template <class T>
struct shareable<std::optional<T>> : shareable<T> {};
template <class A, class B>
struct shareable<std::pair<A, B>> : std::bool_constant<shareable<A>::value && shareable<B>::value> {};
/// An atomic that uses a lock works within one process only. Lock-free atomics work across processes.
template <class T>
struct shareable<std::atomic<T>> : std::bool_constant<shareable<T>::value && std::atomic<T>::is_always_lock_free> {};
template <class T>
struct shareable<offset_ptr<T>> : std::true_type {};
// std::span, std::basic_string_view and std::reference_wrapper are not shareable. They are trivially copyable, but
// contain an address that is valid in this process only.
template <class T, std::size_t N>
struct shareable<std::span<T, N>> : std::false_type {};
template <class C, class Traits>
struct shareable<std::basic_string_view<C, Traits>> : std::false_type {};
template <class T>
struct shareable<std::reference_wrapper<T>> : std::false_type {};

template <class T>
inline constexpr bool is_shareable = shareable<T>::value;

template <class T>
consteval bool detail::shareable_fields() {
  return []<std::size_t... I>(std::index_sequence<I...>) {
    return (is_shareable<field_type<T, I>> && ...);
  }(std::make_index_sequence<field_count<T>>{});
}

}  // namespace crossdock
