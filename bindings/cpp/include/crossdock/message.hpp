// A received message: while it is there, its data is yours to read; when it goes, the producer may write there again.
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

/// What a message of any type has. Moves, does not copy: one message, one release.
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

  /// Gives place and data back to the producer now, and says so if that fails: `std::move(m).release()`, because the
  /// message is gone afterwards. The destructor does the same silently.
  void release() && {
    detail::hand_over(data_);
    if (auto via = std::exchange(via_, nullptr)) via->release(message_);
  }

  std::uint64_t tag() const noexcept { return message_.tag; }
  /// Which message of the port it is, from 0.
  std::uint64_t position() const noexcept { return message_.position; }
  handle data_handle() const noexcept { return message_.handle; }
  /// The small data that came inside the message, at most 24 bytes.
  std::span<const std::byte> inline_bytes() const noexcept {
    return {reinterpret_cast<const std::byte*>(message_.inline_bytes), std::min<std::size_t>(message_.inline_length, CROSSDOCK_INLINE_MAX)};
  }
  /// The same as a V. Error: wrong_type if that many bytes did not come.
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

  /// Where the handle points; in another region than the port's, that one is kept open along with the message.
  template <class T>
  T* find(const region& home) {
    if (message_.handle.segment != home.id()) elsewhere_ = region::of(message_.handle, home.its_session());
    T& data = (elsewhere_ ? *elsewhere_ : home).template load<T>(message_.handle);
    data_ = &data;
    return &data;
  }

 private:
  void let_go() noexcept {
    if (auto via = std::exchange(via_, nullptr)) {
      detail::hand_over(data_);
      try {
        via->release(message_);
      } catch (const error&) {  // the port is closed or its other end is gone: no producer waits for this place
      }
    }
  }

  std::shared_ptr<transport> via_;
  crossdock_message message_;
  std::optional<region> elsewhere_{};
  const void* data_ = nullptr;  // for the sanitizer
};

/// A message whose handle names a T. Keep it as long as the data is read.
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

/// A message of which only tag, handle and inline bytes are wanted.
template <>
class message<void> : public message_base {
 private:
  friend class port;
  message(std::shared_ptr<transport> via, const crossdock_message& m, const region&) : message_base(std::move(via), m) {}
};

}  // namespace crossdock
