// The name of a C++ type in the grammar that all languages share, at compile time.
//
//     i32 f64 c128 …   f32[4][8]   {i32,f64}   vector<f64>   string   ndarray<f32>   cpp:Name
//
// Two tasks can share an object only if they give the same name, size and alignment.
#pragma once

#include <crossdock/detail/type_text.hpp>
#include <crossdock/handle.hpp>
#include <crossdock/shareable.hpp>

#include <algorithm>
#include <cstddef>

namespace crossdock {

namespace detail {

template <class T>
consteval type_text describe();

template <class T>
struct described {
  static constexpr type_text text = describe<T>();
};

}  // namespace detail

/// `type_name<T>::value`. Specialise it to name a class: `static constexpr std::string_view value = "cpp:Name";`, or
/// the name of a type that all languages share, if the class has the layout of that type.
template <class T>
struct type_name {
  static constexpr std::string_view value = detail::described<T>::text.view();
};

namespace detail {

template <class T>
consteval std::string_view scalar_name() {
  if constexpr (std::is_same_v<T, bool>) {
    return "bool";
  } else if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? "f32" : sizeof(T) == 8 ? "f64" : "cpp:long double";
  } else {
    // char is a byte here, because whether it has a sign differs between CPUs.
    constexpr bool is_signed = std::is_signed_v<T> && !std::is_same_v<T, char>;
    constexpr std::array<std::string_view, 8> names = {"u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"};
    static_assert(sizeof(T) <= 8, "crossdock: no integer of more than 64 bits is described");
    return names[(is_signed ? 4 : 0) + (sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3)];
  }
}

/// Puts [n] before the brackets that the name of the element type has already: float[4][8] is f32[4][8], as in C.
constexpr type_text describe_array(std::string_view element, std::size_t n) {
  std::size_t base = element.size();
  while (base > 0 && element[base - 1] == ']') base = element.rfind('[', base - 1);
  type_text extent;
  extent.add('[');
  extent.add(n);
  extent.add(']');
  return compose({element.substr(0, base), extent.view(), element.substr(base)});
}

/// Tells whether the fields of a struct have the offsets that C gives them. The fields of packed and over-aligned
/// structs have other offsets.
template <class T, std::size_t... I>
consteval bool naturally_laid_out(std::index_sequence<I...>) {
  std::size_t size = 0;
  std::size_t align = 1;
  auto up = [](std::size_t n, std::size_t a) { return (n + a - 1) / a * a; };
  ((size = up(size, alignof(field_type<T, I>)) + sizeof(field_type<T, I>), align = std::max(align, alignof(field_type<T, I>))), ...);
  return up(size, align) == sizeof(T) && align == alignof(T);
}

template <class T, std::size_t... I>
consteval type_text describe_fields(std::index_sequence<I...>) {
  if constexpr (naturally_laid_out<T>(std::index_sequence<I...>{})) {
    type_text fields;
    bool opaque = false;
    ((opaque |= is_opaque(type_name<field_type<T, I>>::value)), ...);
    if (!opaque) {
      fields.add('{');
      ((fields.add(I == 0 ? "" : ","), fields.add(type_name<field_type<T, I>>::value)), ...);
      fields.add('}');
      if (!fields.too_long) return fields;
    }
  }
  return describe_opaque<T>();
}

template <class T>
consteval type_text describe() {
  if constexpr (std::is_const_v<T>) {
    return compose({type_name<std::remove_const_t<T>>::value});
  } else if constexpr (std::is_arithmetic_v<T>) {
    return compose({scalar_name<T>()});
  } else if constexpr (std::is_enum_v<T>) {
    return compose({scalar_name<std::underlying_type_t<T>>()});
  } else if constexpr (std::is_bounded_array_v<T>) {
    return describe_array(type_name<std::remove_extent_t<T>>::value, std::extent_v<T>);
  } else if constexpr (std::is_class_v<T> && std::is_aggregate_v<T> && !std::is_empty_v<T>) {
    return describe_fields<T>(std::make_index_sequence<field_count<T>>{});
  } else {
    static_assert(std::is_class_v<T> || std::is_union_v<T>, "crossdock: pointers and references mean nothing in another process");
    return describe_opaque<T>();
  }
}

}  // namespace detail

template <class T, std::size_t N>
struct type_name<std::array<T, N>> {
  static constexpr detail::type_text text = detail::describe_array(type_name<T>::value, N);
  static constexpr std::string_view value = text.view();
};
template <>
struct type_name<std::complex<float>> {
  static constexpr std::string_view value = "c64";
};
template <>
struct type_name<std::complex<double>> {
  static constexpr std::string_view value = "c128";
};
template <>
struct type_name<handle> {
  static constexpr std::string_view value = "{u64,u64}";
};
template <class T>
struct type_name<std::atomic<T>> : type_name<T> {};

/// Describes the type T to the C functions: its name, size and alignment.
template <class T>
crossdock_type type_of() noexcept {
  // The C functions need a zero byte behind the name. Each type name has a zero byte behind it, because it is a string
  // literal or the whole text of a type_text.
  return {type_name<T>::value.data(), sizeof(T), static_cast<std::uint32_t>(alignof(T)), 0};
}

}  // namespace crossdock
