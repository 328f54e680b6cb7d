// How calls fail: one enum of statuses, one exception that carries a status, and one result type for programs that do
// not want exceptions.
#pragma once

#include <crossdock.h>

#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace crossdock {

/// How a call ended; the numbers are the same in every language.
enum class status : int {
  ok = CROSSDOCK_OK,                      ///< the call succeeded
  not_yet = CROSSDOCK_NOT_YET,            ///< there is no result yet, and the caller chose not to wait
  timed_out = CROSSDOCK_TIMED_OUT,        ///< the deadline passed
  closed = CROSSDOCK_CLOSED,              ///< the other end was closed, and all that it had sent was received
  peer_died = CROSSDOCK_PEER_DIED,        ///< the member at the other end died, and all that it had sent was received
  not_found = CROSSDOCK_NOT_FOUND,        ///< there is no such region, port, item, series or object
  exists = CROSSDOCK_EXISTS,              ///< the object exists already, but the call asked for a new one
  wrong_type = CROSSDOCK_WRONG_TYPE,      ///< the object has another type
  invalid = CROSSDOCK_INVALID,            ///< an argument has a value that is never allowed
  bad_handle = CROSSDOCK_BAD_HANDLE,      ///< the handle names nothing that is in use in this region
  denied = CROSSDOCK_DENIED,              ///< no grant of this task allows the call
  no_space = CROSSDOCK_NO_SPACE,          ///< the region, the quota or the node is full
  busy = CROSSDOCK_BUSY,                  ///< another member or request, or an array of this program, uses the object
  corrupt = CROSSDOCK_CORRUPT,            ///< shared memory has contents that no correct member writes
  disconnected = CROSSDOCK_DISCONNECTED,  ///< there is no node daemon, or the session with it is closed
  incompatible = CROSSDOCK_INCOMPATIBLE,  ///< the two sides were built with different layouts or protocols
  system = CROSSDOCK_SYSTEM,              ///< the operating system refused a call
};

/// The name of a status, such as "NO_SPACE". The text is static.
inline std::string_view name(status s) noexcept { return crossdock_status_name(static_cast<crossdock_status>(s)); }

inline std::ostream& operator<<(std::ostream& out, status s) { return out << name(s); }

/// The only exception class of this library. what() names the object, the reason and a hint.
class error : public std::runtime_error {
 public:
  error(crossdock::status s, const std::string& message) : std::runtime_error(message), status_(s) {}
  /// The status with which the call failed.
  crossdock::status status() const noexcept { return status_; }

 private:
  crossdock::status status_;
};

namespace detail {

/// The message for the status `s`, which the last C call of this thread has returned.
inline std::string last_message(crossdock_status s) {
  return s == CROSSDOCK_NOT_YET ? crossdock_status_meaning(s) : crossdock_error_message();
}

[[noreturn]] inline void raise(crossdock_status s) { throw error(static_cast<status>(s), last_message(s)); }

/// Throws crossdock::error if `s` is the status of a C call that failed.
inline void check(crossdock_status s) {
  if (s != CROSSDOCK_OK) [[unlikely]] {
    raise(s);
  }
}

}  // namespace detail
}  // namespace crossdock
