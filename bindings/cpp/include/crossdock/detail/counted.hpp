// A value that holds one counted reference of the C interface: a copy adds a reference, and the destructor gives one
// up.
#pragma once

#include <crossdock/error.hpp>

#include <utility>

namespace crossdock::detail {

template <class Object, crossdock_status (*Ref)(Object*), crossdock_status (*Unref)(Object*)>
class counted {
 public:
  counted() noexcept = default;
  /// Takes over the counted reference that a C function returned.
  explicit counted(Object* taken) noexcept : object_(taken) {}
  counted(const counted& other) : object_(other.object_) {
    if (object_) check(Ref(object_));
  }
  counted(counted&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  counted& operator=(const counted& other) { return *this = counted(other); }
  counted& operator=(counted&& other) noexcept {
    counted taken(std::move(other));
    std::swap(object_, taken.object_);
    return *this;
  }
  ~counted() {
    if (object_) (void)Unref(object_);
  }

  Object* get() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  Object* object_ = nullptr;
};

using session_ref = counted<crossdock_session, crossdock_session_ref, crossdock_session_unref>;
using region_ref = counted<crossdock_region, crossdock_region_ref, crossdock_region_unref>;
using port_ref = counted<crossdock_port, crossdock_port_ref, crossdock_port_unref>;

}  // namespace crossdock::detail
