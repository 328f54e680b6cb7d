// Stream sockets: the data is written into the kernel and read from it. Unix sockets, and TCP over loopback.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "shared.hpp"

namespace synth {

inline void demand(bool right, const char* what) {
  if (!right) fail(std::string(what) + ": " + std::strerror(errno));
}

/// Makes the socket's buffers larger than the default, as far as the kernel allows, so that writer and reader alternate
/// less often.
inline void widen(int fd) {
  const int bytes = 4 << 20;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

/// The consumer listens and publishes its address in a word of the region. The producer connects.
class Stream {
 public:
  Stream(const Shared& shared, const Graph& graph, const Port& port, bool consumer) {
    const bool tcp = port.method == Method::tcp;
    auto& where = shared.word("listening/" + std::to_string(port.index));
    fd_ = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    demand(fd_ >= 0, "socket");
    widen(fd_);
    sockaddr_in inet{};
    sockaddr_un local{};
    sockaddr* address = tcp ? reinterpret_cast<sockaddr*>(&inet) : reinterpret_cast<sockaddr*>(&local);
    socklen_t length = sizeof inet;
    inet.sin_family = AF_INET;
    inet.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    local.sun_family = AF_UNIX;
    if (!tcp) {  // an abstract name, so that no file can be left behind
      const std::string name = "crossdock-synth-" + graph.run + "-" + std::to_string(port.index);
      std::memcpy(local.sun_path + 1, name.data(), name.size());
      length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    }
    consumer ? listen_at(address, length, tcp, inet, where) : connect_to(address, length, tcp, inet, where);
    if (tcp) {
      const int on = 1;
      setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
  }
  ~Stream() {
    close(fd_);
    if (listener_ >= 0) close(listener_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Accepts the producer's connection, if the consumer has not accepted it before. The constructor does not accept the
  /// connection, because the producer may start later than the consumer.
  void take() {
    if (listener_ >= 0 || !listening_) return;
    listener_ = fd_;
    fd_ = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    demand(fd_ >= 0, "accept");
    widen(fd_);
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  void write_all(const void* data, std::size_t bytes) {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t n = ::send(fd_, at, bytes, MSG_NOSIGNAL);
      demand(n > 0 || errno == EINTR, "send");
      if (n > 0) at += n, bytes -= static_cast<std::size_t>(n);
    }
  }
  void read_all(void* data, std::size_t bytes) {
    char* at = static_cast<char*>(data);
    while (bytes > 0) {
      const ssize_t n = recv(fd_, at, bytes, MSG_WAITALL);
      demand(n > 0 || (n < 0 && errno == EINTR), "recv");
      if (n > 0) at += n, bytes -= static_cast<std::size_t>(n);
    }
  }

 private:
  void listen_at(sockaddr* address, socklen_t length, bool tcp, sockaddr_in& inet, std::atomic<std::uint64_t>& where) {
    demand(bind(fd_, address, length) == 0 && listen(fd_, 1) == 0, "listen");
    if (tcp) demand(getsockname(fd_, reinterpret_cast<sockaddr*>(&inet), &length) == 0, "getsockname");
    where.store(std::uint64_t{1} << 32 | ntohs(inet.sin_port));
    listening_ = true;
  }
  void connect_to(sockaddr* address, socklen_t length, bool tcp, sockaddr_in& inet, std::atomic<std::uint64_t>& where) {
    look_until("a consumer to listen", [&] { return where.load() != 0; });
    if (tcp) inet.sin_port = htons(static_cast<std::uint16_t>(where.load()));
    demand(connect(fd_, address, length) == 0, "connect");
  }
  int fd_ = -1, listener_ = -1;
  bool listening_ = false;
};

class SocketOut final : public Out {
 public:
  SocketOut(const Shared& shared, const Graph& graph, const Port& port, const Slots& slots) : stream_(shared, graph, port, false), slots_(slots) {}
  void ready(unsigned) override {}
  void send(unsigned slot) override { stream_.write_all(slots_.place[slot], slots_.elements * 8); }

 private:
  Stream stream_;
  const Slots& slots_;
};

class SocketIn final : public In {
 public:
  SocketIn(const Shared& shared, const Graph& graph, const Port& port)
      : stream_(shared, graph, port, true), elements_(graph.tasks[port.from].elements), own_(private_memory(elements_)) {}
  const std::uint64_t* receive() override {
    stream_.take();
    stream_.read_all(own_, elements_ * 8);
    return own_;
  }
  void release() override {}

 private:
  Stream stream_;
  std::size_t elements_;
  std::uint64_t* own_;
};

}  // namespace synth
