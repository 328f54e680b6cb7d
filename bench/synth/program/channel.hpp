// The interface of one end of a channel between two tasks. Each way of passing data that the benchmark compares
// (crossdock, MPI, files and others) implements it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include <crossdock.h>

#include "graph.hpp"

namespace synth {

/// The buffers from which a task sends. They are used in turn, so that the task fills one buffer while another task
/// reads the previous one.
struct Slots {
  std::size_t elements = 0;
  std::vector<std::uint64_t*> place;
  std::vector<crossdock_handle> handle;  // the places of the buffers in the region
};

struct Out {
  virtual ~Out() = default;
  /// Waits until no consumer reads the buffer `slot` any more, so that the task can fill it again.
  virtual void ready(unsigned slot) = 0;
  virtual void send(unsigned slot) = 0;
  virtual void finish() {}
};

/// The counters of crossdock's ports, added up over all messages that this process received.
struct Counts {
  std::uint64_t messages = 0, sleeps = 0, wakes = 0;
};

struct In {
  virtual ~In() = default;
  virtual const std::uint64_t* receive() = 0;
  virtual void release() = 0;
  virtual void finish() {}
  virtual void count(Counts&) const {}
};

/// The group of all tasks of the workflow. Tasks use it to start a trial together and to agree on its length, but not
/// for data.
struct Group {
  virtual ~Group() = default;
  virtual void barrier() = 0;
  /// Returns to every task the `value` that task 0 passed. `task` is the number of the calling task.
  virtual std::uint64_t agree(unsigned task, std::uint64_t value) = 0;
};

/// Allocates memory of this process, on pages of its own.
inline std::uint64_t* private_memory(std::size_t elements) {
  const std::size_t bytes = (elements * 8 + 4095) / 4096 * 4096;
  void* memory = std::aligned_alloc(4096, bytes);
  if (!memory) fail("no memory for a buffer");
  return static_cast<std::uint64_t*>(memory);
}

inline Slots private_slots(std::size_t elements, unsigned count) {
  Slots s;
  s.elements = elements;
  for (unsigned i = 0; i < count; ++i) s.place.push_back(private_memory(elements));
  return s;
}

}  // namespace synth
