// The transport of a port's messages. crossdock's own queue is one transport, and adapters (MPI) add others. The code
// of a task is the same with each transport.
#pragma once

#include <crossdock/detail/counted.hpp>
#include <crossdock/handle.hpp>
#include <crossdock/timeout.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace crossdock {

class region;

enum class port_end : int {
  producer = CROSSDOCK_PRODUCER,  ///< the side that sends messages and gets credits back
  consumer = CROSSDOCK_CONSUMER,  ///< the side that receives messages and releases them
};
inline constexpr port_end producer = port_end::producer;
inline constexpr port_end consumer = port_end::consumer;

enum class pattern : int {
  one_to_one = CROSSDOCK_ONE_TO_ONE,  ///< one producer and one consumer; messages keep their order
  fan_out = CROSSDOCK_FAN_OUT,        ///< one producer, up to 31 consumers; each message goes to all present consumers
  fan_in = CROSSDOCK_FAN_IN,          ///< up to 32 producers and one consumer
  work_queue = CROSSDOCK_WORK_QUEUE,  ///< up to 32 producers, up to 31 consumers; each message goes to one consumer
  any = CROSSDOCK_ANY_PATTERN,        ///< for an existing port, the pattern that it has; for a new port, one-to-one
};

/// The options of a port. A task that opens an existing port gives the same options as the task or workflow file that
/// made the port, or leaves the options open.
struct port_options {
  crossdock::pattern pattern = crossdock::pattern::any;
  std::uint32_t capacity = 0;  ///< messages in flight, a power of two up to 4096; 0: as the port has, or 8 if it is new
  /// If true, and if this call makes the port, the port and its messages stay after the run, until the port is removed.
  bool persistent = false;
};

/// Carries the messages of one end of a port. send, reclaim and receive return ok, or not_yet if `wait` is no_wait
/// and nothing can be done yet. Every other status is thrown as crossdock::error.
class transport {
 public:
  transport() = default;
  transport(const transport&) = delete;
  transport& operator=(const transport&) = delete;
  virtual ~transport() = default;

  /// `bytes` is the number of bytes that the handle stands for. It is only used for the statistics.
  virtual status send(const crossdock_message& message, std::uint64_t bytes, timeout wait) = 0;
  /// For a producer: waits for a free cell. `was_there` gets the handle of the cell's last message, whose object no
  /// consumer reads any more; {0,0} if the cell was not used before.
  virtual status reclaim(timeout wait, handle& was_there) = 0;
  virtual status receive(timeout wait, crossdock_message& message) = 0;
  /// Gives the cell and the data of a received message back to the producer.
  virtual void release(const crossdock_message& message) = 0;
  /// Puts back a received message, which is not released yet. The next receive gives the message again, and arm reports
  /// that there is something to receive.
  virtual void put_back(const crossdock_message& message) = 0;
  virtual void wait_peer(timeout wait) = 0;
  virtual void close() = 0;
  virtual crossdock_port_statistics statistics() = 0;
  virtual void note_copied(std::uint64_t bytes) = 0;
  /// The C interface's port that this transport uses, from which a program gets a descriptor for its event loop; null
  /// if this transport does not use such a port.
  virtual crossdock_port* native() noexcept { return nullptr; }
};

/// The transport that uses the queue in shared memory, between threads, processes and containers of one node.
///
/// An adapter defines a type like this one. The program passes an object of the type as `via` to region::port(name,
/// end, via), which calls `via.open(region, name, end, options)` to get a transport. adapters/mpi defines
/// `crossdock::mpi` in this way.
struct low_level_t {
  std::unique_ptr<transport> open(const region& in, const std::string& name, port_end end, const port_options& options) const;
};
inline constexpr low_level_t low_level{};

namespace detail {

class native_transport final : public transport {
 public:
  native_transport(crossdock_session* session, const std::string& name, port_end end, const port_options& options, timeout wait) {
    const crossdock_port_options o = {static_cast<crossdock_pattern>(options.pattern), options.capacity,
                                       options.persistent ? 1u : 0u};
    crossdock_port* given = nullptr;
    check(crossdock_port_open(session, name.c_str(), static_cast<crossdock_end>(end), &o, wait.milliseconds(), &given));
    ref_ = port_ref(given);
  }
  status send(const crossdock_message& m, std::uint64_t bytes, timeout wait) override {
    return polled(crossdock_port_send(native(), &m, bytes, wait.milliseconds()));
  }
  status reclaim(timeout wait, handle& was_there) override {
    crossdock_handle h{};
    const status s = polled(crossdock_port_reclaim(native(), wait.milliseconds(), &h));
    was_there = h;
    return s;
  }
  status receive(timeout wait, crossdock_message& m) override { return polled(crossdock_port_receive(native(), wait.milliseconds(), &m)); }
  void release(const crossdock_message& m) override { check(crossdock_port_release(native(), &m)); }
  void put_back(const crossdock_message& m) override { check(crossdock_port_put_back(native(), &m)); }
  void wait_peer(timeout wait) override { check(crossdock_port_wait_peer(native(), wait.milliseconds())); }
  void close() override { check(crossdock_port_close(native())); }
  crossdock_port_statistics statistics() override {
    crossdock_port_statistics s{};
    check(crossdock_port_statistics_get(native(), &s));
    return s;
  }
  void note_copied(std::uint64_t bytes) override { check(crossdock_port_note_copied(native(), bytes)); }
  crossdock_port* native() noexcept override { return ref_.get(); }

 private:
  static status polled(crossdock_status s) {
    if (s != CROSSDOCK_NOT_YET) check(s);
    return static_cast<status>(s);
  }
  port_ref ref_;
};

}  // namespace detail
}  // namespace crossdock
