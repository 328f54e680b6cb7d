// One connection of this process to the node daemon, acting as one task.
#pragma once

#include <crossdock/detail/counted.hpp>
#include <crossdock/timeout.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace crossdock {

/// How to connect. Values that are not set come from the environment (CROSSDOCK_SOCKET, _TASK, _WORKFLOW, _RANK).
struct connect_options {
  std::optional<std::string> socket{};
  std::optional<std::string> task{};
  std::optional<std::string> workflow{};
  std::optional<std::uint32_t> rank{};
  crossdock::timeout timeout = std::chrono::seconds(5);
  bool private_daemon = true;  ///< start a private daemon if no daemon is found; if false: status::not_found
};

/// A connection to the node daemon. Copies share the connection, which is closed when the last copy is destroyed.
/// Thread-safe.
class session {
 public:
  /// The one session that all libraries of this process share. The first call connects it.
  session() {
    crossdock_session* given = nullptr;
    detail::check(crossdock_session_default(&given));
    ref_ = detail::session_ref(given);
  }

  /// Connects a session of its own. Blocks at most options.timeout. Errors: not_found (there is no daemon, or no
  /// workflow of this name), denied (the daemon does not serve this user, or the endpoint is of another task or
  /// workflow), incompatible (the daemon speaks another version of the protocol), timed_out (the daemon does not
  /// answer in time).
  explicit session(const connect_options& options) {
    auto text = [](const std::optional<std::string>& t) { return t ? t->c_str() : nullptr; };
    const crossdock_connect_options c = {text(options.socket), text(options.task), text(options.workflow),
                                         options.rank ? std::int64_t{*options.rank} : -1, options.timeout.milliseconds(),
                                         options.private_daemon ? 1U : 0U, 0};
    crossdock_session* given = nullptr;
    detail::check(crossdock_session_connect(&c, &given));
    ref_ = detail::session_ref(given);
  }

  /// The member id, which is never used again on this node.
  std::uint64_t member() const { return number<std::uint64_t>(crossdock_session_member); }
  std::uint32_t rank() const { return number<std::uint32_t>(crossdock_session_rank); }
  /// The number of the workflow's run that the session takes part in, counted from 1. Ports end with the run.
  std::uint64_t run() const { return number<std::uint64_t>(crossdock_session_run); }
  std::string task() const { return text(crossdock_session_task); }
  std::string workflow() const { return text(crossdock_session_workflow); }

  /// Reports how far this task is: `done` of `of` steps. `crossdock ps`, `top` and the web page show the report. An
  /// `of` of 0 withdraws the report. The call never waits, so it can be made in every iteration. Error: invalid
  /// (`done` is more than `of`).
  void progress(std::uint64_t done, std::uint64_t of) { detail::check(crossdock_session_progress(get(), done, of)); }

  /// Leaves the workflow now and closes all ports. Error: busy, while regions, items, publishers, observers or versions
  /// of this session exist. After this error, these objects and the session still work.
  void close() { detail::check(crossdock_session_close(get())); }

  /// The reference to the session, for calls of the C functions.
  crossdock_session* get() const noexcept { return ref_.get(); }

 private:
  template <class N>
  N number(crossdock_status (*ask)(crossdock_session*, N*)) const {
    N n = 0;
    detail::check(ask(get(), &n));
    return n;
  }
  std::string text(crossdock_status (*ask)(crossdock_session*, char*, std::size_t)) const {
    std::array<char, CROSSDOCK_NAME_MAX + 1> buffer{};
    detail::check(ask(get(), buffer.data(), buffer.size()));
    return buffer.data();
  }

  detail::session_ref ref_;
};

}  // namespace crossdock
