// A received message. As long as the message object exists, the consumer may read the data that the message names. When
// the object is destroyed, the producer may write to the data again.
#pragma once

#include <crossdock/detail/object.hpp>
#include <crossdock/region.hpp>
#include <crossdock/transport.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

namespace crossdock {

namespace detail {
/// Tells whether a later attempt to load an object may succeed, after an attempt has failed with this status.
inline bool passes(status s) noexcept {
  return s == status::no_space || s == status::busy || s == status::disconnected || s == status::timed_out || s == status::system;
}
}  // namespace detail

/// The common part of messages of all types. A message can be moved but not copied, so it is released only once.
class message_base {
 public:
  message_base(message_base&& other) noexcept : via_(std::move(other.via_)), message_(other.message_), elsewhere_(std::move(other.elsewhere_)), data_(other.data_) {}
  message_base& operator=(message_base&& other) noexcept {
    if (this != &other) {
      let_go();
      via_ = std::move(other.via_);
      message_ = other.message_;
      elsewhere_ = std::move(other.elsewhere_);
      data_ = other.data_;
    }
    return *this;
  }
  message_base(const message_base&) = delete;
  message_base& operator=(const message_base&) = delete;
  ~message_base() { let_go(); }

  /// Gives the cell and the data back to the producer now, and throws if that fails. The call is written
  /// `std::move(m).release()`, because the message is gone afterwards. The destructor does the same, but ignores
  /// errors.
  void release() && {
    detail::hand_over(data_);
    if (auto via = std::exchange(via_, nullptr)) via->release(message_);
  }

  std::uint64_t tag() const noexcept { return message_.tag; }
  /// The message's position in the port, counted from 0.
  std::uint64_t position() const noexcept { return message_.position; }
  handle data_handle() const noexcept { return message_.handle; }
  /// The small data that came inside the message, at most 24 bytes.
  std::span<const std::byte> inline_bytes() const noexcept {
    return {reinterpret_cast<const std::byte*>(message_.inline_bytes), std::min<std::size_t>(message_.inline_length, CROSSDOCK_INLINE_MAX)};
  }
  /// The small data as a V. Error: wrong_type if the number of bytes differs.
  template <class V>
    requires(std::is_trivially_copyable_v<V> && sizeof(V) <= CROSSDOCK_INLINE_MAX)
  V value() const {
    if (inline_bytes().size() != sizeof(V)) {
      throw error(status::wrong_type, "the message carries " + std::to_string(inline_bytes().size()) + " bytes inside, and " + std::to_string(sizeof(V)) +
                                          " are asked for: send_value and value must name the same type");
    }
    V v;
    std::memcpy(&v, message_.inline_bytes, sizeof v);
    return v;
  }

 protected:
  message_base(std::shared_ptr<transport> via, const crossdock_message& m) noexcept : via_(std::move(via)), message_(m) {}

  /// The object that the handle names. If the object is not in the port's region, its own region is kept open together
  /// with the message. If the object cannot be loaded now, but a later attempt may succeed, this message object does
  /// not release the message. The caller can then put the message back.
  template <class T>
  T* find(const region& home) {
    try {
      if (message_.handle.segment != home.id()) elsewhere_ = region::of(message_.handle, home.its_session());
      T& data = (elsewhere_ ? *elsewhere_ : home).template load<T>(message_.handle);
      data_ = &data;
      return &data;
    } catch (const error& e) {
      if (detail::passes(e.status())) via_ = nullptr;
      throw;
    }
  }

 private:
  void let_go() noexcept {
    if (auto via = std::exchange(via_, nullptr)) {
      detail::hand_over(data_);
      try {
        via->release(message_);
      } catch (const error&) {  // the port is closed or has no producer, so no producer waits for this cell
      }
    }
  }

  std::shared_ptr<transport> via_;
  crossdock_message message_;
  std::optional<region> elsewhere_{};
  const void* data_ = nullptr;  // the object, for detail::hand_over
};

/// A message whose handle names a T. Keep the message as long as the data is being read.
template <class T>
class message : public message_base {
 public:
  T& operator*() const noexcept { return *data_; }
  T* operator->() const noexcept { return data_; }

 private:
  friend class port;
  message(std::shared_ptr<transport> via, const crossdock_message& m, const region& home) : message_base(std::move(via), m), data_(this->template find<T>(home)) {}

  T* data_;
};

/// A message of which only tag, handle and inline bytes are used.
template <>
class message<void> : public message_base {
 private:
  friend class port;
  message(std::shared_ptr<transport> via, const crossdock_message& m, const region&) : message_base(std::move(via), m) {}
};

}  // namespace crossdock
