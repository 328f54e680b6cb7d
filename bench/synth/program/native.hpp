// Ports of crossdock: the data stays where it is, and a handle of 16 bytes is sent. The classes that copy are for codes
// that keep their data in private memory (Dhmem, section IV-D).
#pragma once

#include <cstring>

#include "shared.hpp"

namespace synth {

class NativePort {
 public:
  NativePort(const Shared& shared, const Graph& graph, const Port& port, crossdock_end end) {
    const crossdock_port_options options = {CROSSDOCK_ONE_TO_ONE, graph.depth, 0};
    const std::string name = "port-" + std::to_string(port.index);
    check(crossdock_port_open(shared.session(), name.c_str(), end, &options, CROSSDOCK_WAIT, &port_), "opening a port");
    check(crossdock_port_set_waiting(port_, static_cast<crossdock_waiting>(graph.waiting)), "choosing how to wait");
  }
  ~NativePort() { crossdock_port_unref(port_); }
  NativePort(const NativePort&) = delete;
  NativePort& operator=(const NativePort&) = delete;
  crossdock_port* get() const { return port_; }

 private:
  crossdock_port* port_ = nullptr;
};

class NativeOut final : public Out {
 public:
  NativeOut(const Shared& shared, const Graph& graph, const Port& port, const Slots& slots)
      : port_(shared, graph, port, CROSSDOCK_PRODUCER), slots_(slots), bytes_(slots.elements * 8) {}
  void ready(unsigned) override {
    if (slots_.handle.empty()) return;  // data inside a message uses no buffer; send waits for a free cell
    crossdock_handle back{};
    check(crossdock_port_reclaim(port_.get(), CROSSDOCK_WAIT, &back), "waiting for a place");
  }
  void send(unsigned slot) override {
    crossdock_message m = CROSSDOCK_MESSAGE_INIT;
    if (slots_.handle.empty()) {  // the data is small enough to be sent inside the message
      m.inline_length = static_cast<std::uint32_t>(bytes_);
      std::memcpy(m.inline_bytes, slots_.place[slot], bytes_);
    } else {
      m.handle = slots_.handle[slot];
    }
    check(crossdock_port_send(port_.get(), &m, bytes_, CROSSDOCK_WAIT), "sending");
  }
  void finish() override { check(crossdock_port_close(port_.get()), "closing"); }

 private:
  NativePort port_;
  const Slots& slots_;
  std::size_t bytes_;
};

class NativeIn final : public In {
 public:
  NativeIn(const Shared& shared, const Graph& graph, const Port& port)
      : port_(shared, graph, port, CROSSDOCK_CONSUMER), shared_(shared), elements_(graph.tasks[port.from].elements) {}
  const std::uint64_t* receive() override {
    check(crossdock_port_receive(port_.get(), CROSSDOCK_WAIT, &message_), "receiving");
    if (message_.inline_length != 0) {
      std::memcpy(inline_, message_.inline_bytes, sizeof inline_);
      return inline_;
    }
    return shared_.load(message_.handle, elements_);
  }
  void release() override { check(crossdock_port_release(port_.get(), &message_), "releasing"); }
  void finish() override { check(crossdock_port_close(port_.get()), "closing"); }
  void count(Counts& all) const override {
    crossdock_port_statistics now{};
    check(crossdock_port_statistics_get(port_.get(), &now), "reading a port's statistics");
    all.messages += now.messages;
    all.sleeps += now.sleeps;
    all.wakes += now.wakes;
  }
  void note_copied(std::size_t bytes) { check(crossdock_port_note_copied(port_.get(), bytes), "noting a copy"); }

 private:
  NativePort port_;
  const Shared& shared_;
  std::size_t elements_;
  crossdock_message message_ = CROSSDOCK_MESSAGE_INIT;
  std::uint64_t inline_[CROSSDOCK_INLINE_MAX / 8] = {};
};

/// Copies the received data into private memory, and then releases the message immediately.
class CopyFrom final : public In {
 public:
  CopyFrom(std::unique_ptr<NativeIn> from, std::size_t elements) : from_(std::move(from)), elements_(elements), own_(private_memory(elements)) {}
  const std::uint64_t* receive() override {
    std::memcpy(own_, from_->receive(), elements_ * 8);
    from_->note_copied(elements_ * 8);
    from_->release();
    return own_;
  }
  void release() override {}
  void finish() override { from_->finish(); }
  void count(Counts& all) const override { from_->count(all); }

 private:
  std::unique_ptr<NativeIn> from_;
  std::size_t elements_;
  std::uint64_t* own_;
};

}  // namespace synth
