// This process's session with the node daemon, and the workflow's region, which has the buffers and the words with
// which tasks wait for each other.
#pragma once

#include <atomic>
#include <string>
#include <time.h>

#include "channel.hpp"

namespace synth {

inline void check(crossdock_status status, const char* what) {
  if (status != CROSSDOCK_OK) fail(std::string(what) + ": " + crossdock_error_message());
}

class Shared {
 public:
  explicit Shared(const Graph& graph) {
    check(crossdock_session_connect(nullptr, &session_), "connecting");
    check(crossdock_region_open(session_, "synth", CROSSDOCK_OPEN_OR_CREATE, graph.region, CROSSDOCK_NO_WAIT, &region_), "opening the region");
  }
  ~Shared() {
    crossdock_region_unref(region_);
    crossdock_session_unref(session_);
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  crossdock_session* session() const { return session_; }

  Slots slots(std::size_t elements, unsigned count) const {
    Slots s;
    s.elements = elements;
    for (unsigned i = 0; i < count; ++i) {
      void* memory = nullptr;
      crossdock_handle handle{};
      check(crossdock_allocate(region_, elements * 8, elements * 8 >= 4096 ? 4096 : 64, &memory), "allocating a buffer");
      check(crossdock_handle_save(region_, memory, &handle), "saving its handle");
      s.place.push_back(static_cast<std::uint64_t*>(memory));
      s.handle.push_back(handle);
    }
    return s;
  }

  /// Returns the address behind a handle of another task, after checking that the block has this many elements.
  const std::uint64_t* load(crossdock_handle handle, std::size_t elements) const {
    crossdock_object object{};
    check(crossdock_handle_load(region_, handle, nullptr, &object), "loading a handle");
    if (object.size < elements * 8) fail("a buffer is smaller than its task said");
    return static_cast<const std::uint64_t*>(object.address);
  }

  /// Returns a word of shared memory that all tasks find by its name.
  std::atomic<std::uint64_t>& word(const std::string& name) const {
    crossdock_object object{};
    check(crossdock_object_open(region_, name.c_str(), "u64", CROSSDOCK_OPEN_OR_CREATE, CROSSDOCK_WAIT, &object), "opening a word");
    return *static_cast<std::atomic<std::uint64_t>*>(object.address);
  }

 private:
  crossdock_session* session_ = nullptr;
  crossdock_region* region_ = nullptr;
};

/// Reads a word every 50 µs until it has this value, for events that occur a few times per run. After a minute the task
/// ends with an error.
template <class Done>
void look_until(const char* what, Done done) {
  for (int i = 0; i < 1200000; ++i) {
    if (done()) return;
    const timespec pause{0, 50000};
    nanosleep(&pause, nullptr);
  }
  fail(std::string("waited a minute for ") + what);
}

class RegionGroup final : public Group {
 public:
  RegionGroup(const Shared& shared, const Graph& graph) : shared_(shared), tasks_(graph.tasks.size()), arrived_(shared.word("barrier")) {}
  void barrier() override {
    const std::uint64_t all = tasks_ * ++barriers_;
    arrived_.fetch_add(1);
    look_until("the other tasks", [&] { return arrived_.load() >= all; });
  }
  std::uint64_t agree(unsigned task, std::uint64_t value) override {
    auto& said = shared_.word("agreed/" + std::to_string(agreements_++));
    if (task == 0) said.store(value + 1);
    look_until("the first task's word", [&] { return said.load() != 0; });
    return said.load() - 1;
  }

 private:
  const Shared& shared_;
  std::uint64_t tasks_;
  std::atomic<std::uint64_t>& arrived_;
  std::uint64_t barriers_ = 0, agreements_ = 0;
};

}  // namespace synth
