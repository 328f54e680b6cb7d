// How a series is declared, and what its versions contain besides the arrays: variables, values and constants.
#pragma once

#include <crossdock/type_name.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace crossdock {

/// A number or a text (at most 63 bytes): an attribute of a version, or a constant of a variable.
class value {
 public:
  value() = default;
  template <std::signed_integral N>
  value(N n) : held_(std::int64_t{n}) {}
  template <std::unsigned_integral N>
  value(N n) : held_(std::uint64_t{n}) {}
  value(double x) : held_(x) {}
  value(std::string text) : held_(std::move(text)) {}
  value(const char* text) : held_(std::string(text)) {}
  /// Converts a value that a C function gave.
  explicit value(const crossdock_value& v) {
    switch (v.kind) {
      case CROSSDOCK_VALUE_I64: held_ = v.number.i64; break;
      case CROSSDOCK_VALUE_U64: held_ = v.number.u64; break;
      case CROSSDOCK_VALUE_F64: held_ = v.number.f64; break;
      case CROSSDOCK_VALUE_TEXT: held_ = std::string(v.text); break;
    }
  }

  /// The value as a T (std::int64_t, std::uint64_t, double, std::string). Throws wrong_type if the value is of
  /// another kind.
  template <class T>
  const T& as() const {
    if (const T* held = std::get_if<T>(&held_)) return *held;
    throw error(status::wrong_type, "the value is of another kind than it was asked for as");
  }

  /// Converts the value to the C struct. Throws invalid if a text is longer than 63 bytes.
  crossdock_value native() const {
    crossdock_value v{};
    v.kind = static_cast<crossdock_value_kind>(held_.index());
    if (const auto* i = std::get_if<std::int64_t>(&held_)) v.number.i64 = *i;
    if (const auto* u = std::get_if<std::uint64_t>(&held_)) v.number.u64 = *u;
    if (const auto* f = std::get_if<double>(&held_)) v.number.f64 = *f;
    if (const auto* text = std::get_if<std::string>(&held_)) {
      if (text->size() > CROSSDOCK_TEXT_MAX) throw error(status::invalid, "a text value has at most 63 bytes: '" + *text + "'");
      std::memcpy(v.text, text->data(), text->size());
    }
    return v;
  }

  friend bool operator==(const value&, const value&) = default;

 private:
  std::variant<std::int64_t, std::uint64_t, double, std::string> held_{};
};

/// A list of named values: `{{"step", 3}, {"time", 0.25}}`.
using attributes = std::vector<std::pair<std::string, value>>;

/// Describes an array that a publisher works on in place, for example `variable::of<double>("u", {512, 512})`.
struct variable {
  std::string name{};
  std::string type{};                      ///< the element type, in the grammar of type_name
  std::vector<std::uint64_t> shape{};      ///< the present shape; empty for a single value
  std::vector<std::uint64_t> max_shape{};  ///< the largest shape; empty: the shape is final
  attributes constants{};                  ///< values that never change: spacing, units
  crossdock_order order = CROSSDOCK_ORDER_C;

  template <class T>
  static variable of(std::string name, std::vector<std::uint64_t> shape = {}, std::vector<std::uint64_t> max_shape = {}) {
    static_assert(std::is_trivially_copyable_v<T>, "crossdock: a version is bytes; its elements must be plain data");
    return {std::move(name), std::string(type_name<T>::value), std::move(shape), std::move(max_shape), {}, CROSSDOCK_ORDER_C};
  }
  variable with(std::string constant, value v) && {
    constants.emplace_back(std::move(constant), std::move(v));
    return std::move(*this);
  }
};

namespace detail {

/// The C structs for a list of attributes. They are valid during one call.
class native_attributes {
 public:
  native_attributes() = default;
  explicit native_attributes(const attributes& from) {
    list_.reserve(from.size());
    for (const auto& [name, v] : from) list_.push_back({name.c_str(), v.native()});
  }
  const crossdock_attribute* data() const noexcept { return list_.data(); }
  std::size_t size() const noexcept { return list_.size(); }

 private:
  std::vector<crossdock_attribute> list_{};
};

inline void copy_lengths(const std::vector<std::uint64_t>& from, std::uint64_t (&to)[CROSSDOCK_RANK_MAX]) {
  if (from.size() > CROSSDOCK_RANK_MAX) throw error(status::invalid, "a variable has at most 8 dimensions");
  std::copy(from.begin(), from.end(), to);
}

}  // namespace detail
}  // namespace crossdock
