// A bounded channel between tasks that carries handles, with credits that flow back (Dhmem paper, section III-D,
// Listing 8).
#pragma once

#include <crossdock/message.hpp>
#include <crossdock/region.hpp>
#include <crossdock/result.hpp>
#include <crossdock/transport.hpp>
#include <crossdock/vector.hpp>

#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace crossdock {

/// The number of bytes of the data that belongs to x, for the statistics of the port.
template <class T>
std::uint64_t payload_bytes(const T& x) noexcept {
  if constexpr (requires { x.data(); x.size(); }) {
    return x.size() * sizeof(*x.data());
  } else {
    return sizeof(T);
  }
}

/// One end of a port. Every wait has a deadline; its error names the peer for which the call waited. Sending and
/// receiving are thread-safe, except that only one thread may call reclaim, and only one may call recv, whose result is
/// valid until the next recv. Errors: timed_out (the deadline passed), closed (the other end or this end was closed),
/// peer_died (the other end died), invalid (a producer receives, or a consumer sends).
class port {
 public:
  port(const region& home, std::unique_ptr<transport> via) : home_(home), via_(std::move(via)) {}

  /// Sends an object of the region by its handle. If the port is full, waits for a free cell. The object must not
  /// change until reclaim returns it, because the consumer may still read it.
  template <class T>
  void send(const T& x, timeout wait = {}) {
    send(x, 0, wait);
  }
  template <class T>
  void send(const T& x, std::uint64_t tag, timeout wait = {}) {
    detail::hand_over(std::addressof(x));
    send_handle(home_.save(x), tag, payload_bytes(x), wait);
  }
  void send_handle(handle h, std::uint64_t tag = 0, std::uint64_t bytes = 0, timeout wait = {}) {
    demand(via_->send({h, tag, 0, 0, 0, {}}, bytes, wait));
  }
  /// Sends up to 24 bytes inside the message itself. There is no object and nothing to reclaim.
  template <class V>
    requires(std::is_trivially_copyable_v<V> && sizeof(V) <= CROSSDOCK_INLINE_MAX)
  void send_value(const V& v, std::uint64_t tag = 0, timeout wait = {}) {
    crossdock_message m = {{0, 0}, tag, 0, sizeof(V), 0, {}};
    std::memcpy(m.inline_bytes, &v, sizeof v);
    demand(via_->send(m, sizeof v, wait));
  }
  /// Sends an object by its handle, with up to 24 bytes in the message, which message::value gives.
  template <class T, class V>
    requires(std::is_trivially_copyable_v<V> && sizeof(V) <= CROSSDOCK_INLINE_MAX)
  void send_with(const T& x, const V& v, std::uint64_t tag = 0, timeout wait = {}) {
    detail::hand_over(std::addressof(x));
    crossdock_message m = {home_.save(x), tag, 0, sizeof(V), 0, {}};
    std::memcpy(m.inline_bytes, &v, sizeof v);
    demand(via_->send(m, payload_bytes(x), wait));
  }
  /// Works like send, but returns a result. If the port is full, the result is status::not_yet.
  template <class T>
  result<void> try_send(const T& x, std::uint64_t tag = 0, timeout wait = no_wait) {
    detail::hand_over(std::addressof(x));
    return tried<void>([&] { return via_->send({home_.save(x), tag, 0, 0, 0, {}}, payload_bytes(x), wait); }, [] {});
  }

  /// Waits for the cell that the next send uses. Returns the object that the cell's last message carried, which may be
  /// written again. Returns null if the cell was not used before.
  template <class T>
  T* reclaim(timeout wait = {}) {
    const handle h = reclaim_handle(wait);
    if (!h) return nullptr;
    T& object = home_.load<T>(h);
    detail::take_over(&object);
    return &object;
  }
  handle reclaim_handle(timeout wait = {}) {
    handle h;
    demand(via_->reclaim(wait, h));
    return h;
  }

  /// Waits for a message and returns its object. The message is released by the next recv, by done(), or when the port
  /// is closed.
  template <class T>
  T& recv(timeout wait = {}) {
    held_.reset();
    auto m = receive<T>(wait);
    T& data = *m;
    held_.emplace(std::move(m));
    return data;
  }
  /// Tells the port that the object of the last recv is no longer read.
  void done() {
    if (held_) {
      auto m = std::move(*held_);
      held_.reset();
      std::move(m).release();
    }
  }
  /// Works like recv, but returns a message, which is released when the message object is destroyed. T may be void.
  /// Further errors: wrong_type, if the object is no T. If the object's region cannot be opened for a reason that may
  /// be temporary (no_space, busy, disconnected, timed_out, system), the message is put back, and the next receive
  /// gives it.
  template <class T>
  message<T> receive(timeout wait = {}) {
    crossdock_message m{};
    demand(via_->receive(wait, m));
    return got<T>(m);
  }
  template <class T>
  result<message<T>> try_receive(timeout wait = no_wait) {
    crossdock_message m{};
    return tried<message<T>>([&] { return via_->receive(wait, m); }, [&] { return got<T>(m); });
  }

  /// For code that keeps its data outside of the region (Dhmem paper, section IV-D): copies data into a shared vector
  /// before the vector is sent, or out of the vector after it was received. The statistics of the port count the
  /// copied bytes.
  template <class T>
  void copy_into(vector<T>& shared, std::span<const T> own) {
    shared.assign(own);
    note_copied(own.size_bytes());
  }
  template <class T>
  void copy_from(const vector<T>& shared, std::vector<T>& own) {
    own.assign(shared.begin(), shared.end());
    note_copied(shared.size() * sizeof(T));
  }

  /// Waits until there is a living peer at the other end.
  void wait_peer(timeout wait = {}) { via_->wait_peer(wait); }
  /// Closes this end, so that the other end knows that this member did not die. Consumers still get everything that was
  /// sent.
  void close() {
    held_.reset();
    via_->close();
  }
  crossdock_port_statistics statistics() const { return via_->statistics(); }
  /// Adds `bytes` to the port's counter of copied bytes: bytes that this end copied because its code keeps its data
  /// outside of the region.
  void note_copied(std::uint64_t bytes) { via_->note_copied(bytes); }

  /// The descriptor of this end for event loops. crossdock.h describes at crossdock_port_descriptor how to use it. Not
  /// every transport has such a descriptor.
  int descriptor() const {
    int fd = -1;
    detail::check(crossdock_port_descriptor(native(), &fd));
    return fd;
  }
  /// Makes the descriptor readable at the next event. Returns true if there is something to do now.
  bool arm() {
    int ready = 0;
    detail::check(crossdock_port_arm(native(), &ready));
    return ready != 0;
  }
  void disarm() { detail::check(crossdock_port_disarm(native())); }

 private:
  crossdock_port* native() const {
    if (auto* p = via_->native()) return p;
    throw error(status::invalid, "this port's transport has no descriptor: poll it with try_receive, or wait with a deadline");
  }
  /// Throws unless the status is ok. send, reclaim and receive have no way to return "not yet", so they throw for the
  /// status not_yet, too.
  static void demand(status s) {
    if (s != status::ok) throw error(s, "the port has nothing (or no place) now, and the call was not to wait: use the try_ variant");
  }
  /// If the handle names an object of another type, the destructor of the message's base class releases the cell.
  template <class T>
  message<T> got(const crossdock_message& m) {
    try {
      return message<T>(via_, m, home_);
    } catch (const error& e) {
      if (detail::passes(e.status())) via_->put_back(m);
      throw;
    }
  }
  template <class T, class Call, class Value>
  static result<T> tried(Call call, Value value) {
    try {
      if (const status s = call(); s != status::ok) return failure{s, {}};
      if constexpr (std::is_void_v<T>) {
        return {};
      } else {
        return value();
      }
    } catch (const error& e) {
      return failure{e.status(), e.what()};
    }
  }

  region home_;
  std::shared_ptr<transport> via_;
  std::optional<message_base> held_{};
};

/// The name that the Dhmem paper uses for a port.
using Port = port;

template <class Via>
port region::port(const std::string& name, port_end end, const Via& via, const port_options& options) {
  return crossdock::port(*this, via.open(*this, name, end, options));
}
inline port region::port(const std::string& name, port_end end, const port_options& options) { return port(name, end, low_level, options); }

inline std::unique_ptr<transport> low_level_t::open(const region& in, const std::string& name, port_end end, const port_options& options) const {
  return std::make_unique<detail::native_transport>(in.its_session().get(), name, end, options, default_wait);
}

/// Removes the name of a port. Members that have the port open keep it. Errors: not_found (there is no port of this
/// name), denied (no grant to remove it).
inline void remove_port(const std::string& name, const session& s = session()) { detail::check(crossdock_port_remove(s.get(), name.c_str())); }

}  // namespace crossdock
