// The result of the functions whose names begin with try_: the value, or the reason why there is none. If there is no
// value, value() throws.
#pragma once

#include <crossdock/error.hpp>

#include <cassert>
#include <type_traits>
#include <utility>
#include <variant>

namespace crossdock {

/// A status of a failed call, with the message of the failure.
struct failure {
  crossdock::status status = crossdock::status::ok;
  std::string message{};
};

/// A T (which may be a reference) or a failure. Test the result before you read the value.
template <class T>
class [[nodiscard]] result {
  using stored = std::conditional_t<std::is_reference_v<T>, std::add_pointer_t<std::remove_reference_t<T>>, T>;

 public:
  result(T value)  // NOLINT(google-explicit-constructor): a value is a result
    requires(!std::is_reference_v<T>)
      : state_(std::in_place_index<0>, std::move(value)) {}
  result(T value)
    requires std::is_reference_v<T>
      : state_(std::in_place_index<0>, &value) {}
  result(failure why) : state_(std::in_place_index<1>, std::move(why)) { assert(status() != status::ok); }

  explicit operator bool() const noexcept { return state_.index() == 0; }
  crossdock::status status() const noexcept { return *this ? crossdock::status::ok : std::get<1>(state_).status; }
  /// The message of the failure; empty if there is a value.
  std::string_view message() const noexcept { return *this ? std::string_view{} : std::get<1>(state_).message; }

  /// The value. Throws crossdock::error if the result is a failure.
  decltype(auto) value() & { return (demand(), get(*this)); }
  decltype(auto) value() const& { return (demand(), get(*this)); }
  T value() && {
    demand();
    if constexpr (std::is_reference_v<T>) {
      return *std::get<0>(state_);
    } else {
      return std::get<0>(std::move(state_));
    }
  }

  decltype(auto) operator*() & noexcept { return (assert(*this), get(*this)); }
  decltype(auto) operator*() const& noexcept { return (assert(*this), get(*this)); }
  T operator*() && noexcept(std::is_nothrow_move_constructible_v<stored>) { return std::move(*this).value(); }
  auto* operator->() noexcept { return &**this; }
  const auto* operator->() const noexcept { return &**this; }

 private:
  void demand() const {
    if (!*this) {
      throw error(status(), std::string(message()));
    }
  }
  template <class Self>
  static auto& get(Self& self) noexcept {
    if constexpr (std::is_reference_v<T>) {
      return **std::get_if<0>(&self.state_);
    } else {
      return *std::get_if<0>(&self.state_);
    }
  }

  std::variant<stored, failure> state_;
};

/// The result of a call that gives no value: success or a failure.
template <>
class [[nodiscard]] result<void> {
 public:
  result() = default;
  result(failure why) : why_(std::move(why)) {}

  explicit operator bool() const noexcept { return why_.status == crossdock::status::ok; }
  crossdock::status status() const noexcept { return why_.status; }
  std::string_view message() const noexcept { return why_.message; }
  /// Throws crossdock::error if this is a failure.
  void value() const {
    if (!*this) {
      throw error(why_.status, why_.message);
    }
  }

 private:
  failure why_;
};

namespace detail {

/// Makes a failure from the status that the last C call of this thread returned. The message is empty for not_yet,
/// because not_yet is no failure of the C functions.
inline failure last_failure(crossdock_status s) {
  return {static_cast<status>(s), s == CROSSDOCK_NOT_YET ? std::string() : last_message(s)};
}

/// Calls a function that may throw crossdock::error, and returns the outcome as a result.
template <class F>
auto as_result(F&& f) -> result<std::invoke_result_t<F>> {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<F>>) {
      f();
      return {};
    } else {
      return result<std::invoke_result_t<F>>(f());
    }
  } catch (const error& e) {
    return failure{e.status(), e.what()};
  }
}

}  // namespace detail
}  // namespace crossdock
