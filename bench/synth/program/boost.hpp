// Ports over Boost.Interprocess, which the Dhmem paper uses. The data lies in a managed_shared_memory of the producer.
// One message_queue carries the handles of the data, and another one carries the credits back.
#pragma once

#ifdef SYNTH_BOOST
#include <boost/interprocess/ipc/message_queue.hpp>
#include <boost/interprocess/managed_shared_memory.hpp>
#include <optional>

#include "shared.hpp"

namespace synth {

namespace bip = boost::interprocess;

inline std::string boost_name(const Graph& graph, const std::string& what, unsigned index) {
  return "crossdock-synth-" + graph.run + "-" + what + "-" + std::to_string(index);
}

/// A task's slots, in a shared memory object whose name the destructor removes. The kernel frees the memory when its
/// last mapping is gone.
class BoostSegment {
 public:
  BoostSegment(const Graph& graph, unsigned task) : name_(boost_name(graph, "task", task)) {
    const std::size_t bytes = graph.tasks[task].elements * 8;
    memory_.emplace(bip::create_only, name_.c_str(), (bytes + 4096) * graph.depth + (1 << 20));
    slots_.elements = graph.tasks[task].elements;
    for (unsigned i = 0; i < graph.depth; ++i) slots_.place.push_back(static_cast<std::uint64_t*>(memory_->allocate_aligned(bytes, 64)));
  }
  ~BoostSegment() { bip::shared_memory_object::remove(name_.c_str()); }
  BoostSegment(const BoostSegment&) = delete;
  BoostSegment& operator=(const BoostSegment&) = delete;
  const Slots& slots() const { return slots_; }
  std::uint64_t handle(unsigned slot) const { return static_cast<std::uint64_t>(memory_->get_handle_from_address(slots_.place[slot])); }

 private:
  std::string name_;
  std::optional<bip::managed_shared_memory> memory_;
  Slots slots_;
};

class BoostOut final : public Out {
 public:
  BoostOut(const Shared& shared, const Graph& graph, const Port& port, const BoostSegment& segment)
      : there_(boost_name(graph, "there", port.index)), back_(boost_name(graph, "back", port.index)), segment_(segment), depth_(graph.depth) {
    queue_there_.emplace(bip::create_only, there_.c_str(), depth_, sizeof(std::uint64_t));
    queue_back_.emplace(bip::create_only, back_.c_str(), depth_, sizeof(std::uint64_t));
    shared.word("boost/" + std::to_string(port.index)).store(1);
  }
  ~BoostOut() override {
    bip::message_queue::remove(there_.c_str());
    bip::message_queue::remove(back_.c_str());
  }
  void ready(unsigned) override {
    if (sent_ - returned_ == depth_) credit();
  }
  void send(unsigned slot) override {
    const std::uint64_t handle = segment_.handle(slot);
    queue_there_->send(&handle, sizeof handle, 0);
    ++sent_;
  }
  void finish() override {
    while (returned_ < sent_) credit();
  }

 private:
  void credit() {
    std::uint64_t handle = 0;
    bip::message_queue::size_type size = 0;
    unsigned priority = 0;
    queue_back_->receive(&handle, sizeof handle, size, priority);
    ++returned_;
  }
  std::string there_, back_;
  const BoostSegment& segment_;
  std::optional<bip::message_queue> queue_there_, queue_back_;
  std::uint64_t depth_, sent_ = 0, returned_ = 0;
};

class BoostIn final : public In {
 public:
  BoostIn(const Shared& shared, const Graph& graph, const Port& port) {
    auto& made = shared.word("boost/" + std::to_string(port.index));
    look_until("a producer's queues", [&] { return made.load() == 1; });
    queue_there_.emplace(bip::open_only, boost_name(graph, "there", port.index).c_str());
    queue_back_.emplace(bip::open_only, boost_name(graph, "back", port.index).c_str());
    memory_.emplace(bip::open_only, boost_name(graph, "task", port.from).c_str());
  }
  const std::uint64_t* receive() override {
    bip::message_queue::size_type size = 0;
    unsigned priority = 0;
    queue_there_->receive(&handle_, sizeof handle_, size, priority);
    return static_cast<const std::uint64_t*>(memory_->get_address_from_handle(static_cast<bip::managed_shared_memory::handle_t>(handle_)));
  }
  void release() override { queue_back_->send(&handle_, sizeof handle_, 0); }

 private:
  std::optional<bip::message_queue> queue_there_, queue_back_;
  std::optional<bip::managed_shared_memory> memory_;
  std::uint64_t handle_ = 0;
};

}  // namespace synth
#endif
