// The observer of a series. Its versions never change and are mapped as contiguous arrays that cannot be written.
#pragma once

#include <crossdock/detail/counted.hpp>
#include <crossdock/result.hpp>
#include <crossdock/session.hpp>
#include <crossdock/variable.hpp>

#include <array>
#include <chrono>
#include <optional>
#include <span>

namespace crossdock {

namespace detail {
using observer_ref = counted<crossdock_observer, crossdock_observer_ref, crossdock_observer_unref>;
using version_ref = counted<crossdock_series_version, crossdock_series_version_ref, crossdock_series_version_unref>;
}  // namespace detail

/// A version, pinned as long as a copy of this object exists. The spans of its arrays are valid for the same time;
/// after a refresh the spans show the newest version.
class version {
 public:
  explicit version(detail::version_ref ref) noexcept : ref_(std::move(ref)) {}

  std::uint64_t sequence() const {
    std::uint64_t n = 0;
    detail::check(crossdock_series_version_sequence(get(), &n));
    return n;
  }
  std::chrono::sys_time<std::chrono::nanoseconds> time() const {
    std::uint64_t ns = 0;
    detail::check(crossdock_series_version_time(get(), &ns));
    return std::chrono::sys_time<std::chrono::nanoseconds>(std::chrono::nanoseconds(ns));
  }
  /// The number of versions that observer::each skipped just before this version, because they no longer existed.
  std::uint64_t missed() const {
    std::uint64_t n = 0;
    detail::check(crossdock_series_version_missed(get(), &n));
    return n;
  }
  /// False if the publisher has taken the version back (CROSSDOCK_FULL_TAKE_BACK). Spans that were made before keep
  /// their contents.
  bool valid() const {
    int valid = 0;
    detail::check(crossdock_series_version_valid(get(), &valid));
    return valid != 0;
  }
  /// The elements of a variable. Errors: not_found (there is no such variable, or the version was taken back),
  /// wrong_type (the elements are no T; the message has both types).
  template <class T>
  std::span<const T> span(const std::string& variable) const {
    const void* data = nullptr;
    std::uint64_t bytes = 0;
    detail::check(crossdock_series_version_data(get(), variable.c_str(), &data, &bytes));
    crossdock_variable_info info{};
    detail::check(crossdock_series_version_variable(get(), variable.c_str(), &info));
    if (info.element_size != sizeof(T) || info.type != type_name<T>::value) {
      throw error(status::wrong_type, "variable '" + variable + "' has elements of type " + info.type + ", not " + std::string(type_name<T>::value));
    }
    return {static_cast<const T*>(data), static_cast<std::size_t>(bytes / sizeof(T))};
  }
  std::vector<std::uint64_t> shape(const std::string& variable) const {
    std::uint32_t dimensions = 0;
    std::array<std::uint64_t, CROSSDOCK_RANK_MAX> shape{};
    detail::check(crossdock_series_version_shape(get(), variable.c_str(), &dimensions, shape.data()));
    return {shape.begin(), shape.begin() + dimensions};
  }
  /// An attribute as a T (std::int64_t, std::uint64_t, double, std::string). Errors: not_found (the version has no
  /// such attribute), wrong_type (the attribute is of another kind).
  template <class T>
  T attribute(const std::string& name) const {
    crossdock_value v{};
    detail::check(crossdock_series_version_attribute(get(), name.c_str(), &v));
    return value(v).as<T>();
  }
  crossdock::attributes attributes() const {
    std::uint32_t count = 0;
    detail::check(crossdock_series_version_attribute_count(get(), &count));
    crossdock::attributes all;
    for (std::uint32_t i = 0; i < count; ++i) {
      std::array<char, CROSSDOCK_NAME_MAX + 1> name{};
      crossdock_value v{};
      detail::check(crossdock_series_version_attribute_at(get(), i, name.data(), &v));
      all.emplace_back(name.data(), value(v));
    }
    return all;
  }
  /// Turns this object into the newest version. Only the chunks that differ are mapped again, or copied if the variable
  /// is small (crossdock_series_version_refresh); their number is returned. Spans that were made before stay valid and
  /// show the new version.
  std::uint64_t refresh() {
    std::uint64_t remapped = 0;
    detail::check(crossdock_series_version_refresh(get(), &remapped));
    return remapped;
  }

  /// The counted reference that this object holds, for calls of the C functions.
  crossdock_series_version* get() const noexcept { return ref_.get(); }

 private:
  detail::version_ref ref_;
};

/// The chunks in which two versions of a series differ. Error: invalid (the versions are of different series).
inline std::vector<crossdock_change> diff(const version& before, const version& after) {
  std::size_t count = 0;
  detail::check(crossdock_series_version_diff(before.get(), after.get(), nullptr, 0, &count));
  std::vector<crossdock_change> changes(count);
  detail::check(crossdock_series_version_diff(before.get(), after.get(), changes.data(), changes.size(), &count));
  return changes;
}

/// Observes a series. Copies are the same observer: if `next` of one copy has returned a version, the other copies do
/// not return it again.
class observer {
 public:
  /// Observes the series of this name in the current run, and waits for it. Errors: not_found (there is no such series,
  /// and `wait` is no_wait), timed_out (no such series came before the deadline), denied (no grant to observe the
  /// series), no_space (the series has as many observers as it allows).
  explicit observer(const std::string& name, timeout wait = {}, const session& s = session()) {
    crossdock_observer* given = nullptr;
    detail::check(crossdock_observer_open(s.get(), name.c_str(), wait.milliseconds(), &given));
    ref_ = detail::observer_ref(given);
  }

  /// Observes the latest series of this name from any run, also from one that has ended. Errors as for the constructor.
  static observer former(const std::string& name, timeout wait = {}, const session& s = session()) {
    crossdock_observer* given = nullptr;
    detail::check(crossdock_observer_open_former(s.get(), name.c_str(), wait.milliseconds(), &given));
    return observer(detail::observer_ref(given));
  }

  /// The newest version. Errors if no version was published: not_yet (the publisher lives), closed (it has ended),
  /// peer_died (it died).
  version latest() const {
    return taken([&](auto** v) { return crossdock_observer_latest(get(), v); });
  }
  /// Waits for a version that is newer than the last one returned, and returns the newest. Errors if there is no newer
  /// version: timed_out (at the deadline), closed (the publisher has ended the series), peer_died (the publisher died).
  version next(timeout wait = {}) const {
    return taken([&](auto** v) { return crossdock_observer_next(get(), wait.milliseconds(), v); });
  }
  /// Works like next, but returns a result. With no_wait, the result is status::not_yet if there is no newer version.
  result<version> try_next(timeout wait = no_wait) const {
    crossdock_series_version* v = nullptr;
    if (const auto s = crossdock_observer_next(get(), wait.milliseconds(), &v); s != CROSSDOCK_OK) return detail::last_failure(s);
    return version(detail::version_ref(v));
  }
  /// Waits for the version that follows the one that this observer returned last. Versions that no longer exist are
  /// skipped, and version::missed counts them. Errors as for next.
  version each(timeout wait = {}) const {
    return taken([&](auto** v) { return crossdock_observer_each(get(), wait.milliseconds(), v); });
  }
  /// The version with this number. Errors: not_found (it no longer exists), not_yet (it is not published yet), and
  /// with a timeout the errors of next.
  version at(std::uint64_t sequence, timeout wait = no_wait) const {
    return taken([&](auto** v) { return crossdock_observer_at(get(), sequence, wait.milliseconds(), v); });
  }

  crossdock_series_state state() const {
    crossdock_series_state s{};
    detail::check(crossdock_observer_state(get(), &s));
    return s;
  }
  /// The id of the series. When a publisher is restarted, its series gets another id.
  std::uint64_t id() const {
    std::uint64_t n = 0;
    detail::check(crossdock_observer_id(get(), &n));
    return n;
  }
  std::vector<crossdock_variable_info> variables() const {
    std::uint32_t count = 0;
    detail::check(crossdock_observer_variable_count(get(), &count));
    std::vector<crossdock_variable_info> all(count);
    for (std::uint32_t i = 0; i < count; ++i) detail::check(crossdock_observer_variable(get(), i, &all[i]));
    return all;
  }
  template <class T>
  T constant(const std::string& variable, const std::string& name) const {
    crossdock_value v{};
    detail::check(crossdock_observer_constant(get(), variable.c_str(), name.c_str(), &v));
    return value(v).as<T>();
  }

  /// The counted reference that this object holds, for calls of the C functions.
  crossdock_observer* get() const noexcept { return ref_.get(); }

 private:
  explicit observer(detail::observer_ref ref) : ref_(std::move(ref)) {}

  template <class Ask>
  version taken(Ask ask) const {
    crossdock_series_version* v = nullptr;
    detail::check(ask(&v));
    return version(detail::version_ref(v));
  }

  detail::observer_ref ref_;
};

}  // namespace crossdock
