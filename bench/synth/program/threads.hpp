// The method that the Dhmem paper calls Threads: all tasks are threads of one process. A task passes a pointer to the
// next task under a mutex, and a thread that waits sleeps at a condition variable.
#pragma once

#include <barrier>
#include <condition_variable>
#include <mutex>

#include "channel.hpp"

namespace synth {

class Queue {
 public:
  explicit Queue(unsigned depth) : places_(depth) {}
  void wait_for_room() {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return sent_ - released_ < places_.size(); });
  }
  void send(const std::uint64_t* data) {
    {
      std::lock_guard lock(mutex_);
      places_[sent_++ % places_.size()] = data;
    }
    news_.notify_one();
  }
  const std::uint64_t* receive() {
    std::unique_lock lock(mutex_);
    news_.wait(lock, [&] { return taken_ < sent_; });
    return places_[taken_++ % places_.size()];
  }
  void release() {
    {
      std::lock_guard lock(mutex_);
      ++released_;
    }
    room_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable room_, news_;
  std::vector<const std::uint64_t*> places_;
  std::uint64_t sent_ = 0, taken_ = 0, released_ = 0;
};

class ThreadOut final : public Out {
 public:
  ThreadOut(Queue& queue, const Slots& slots) : queue_(queue), slots_(slots) {}
  void ready(unsigned) override { queue_.wait_for_room(); }
  void send(unsigned slot) override { queue_.send(slots_.place[slot]); }

 private:
  Queue& queue_;
  const Slots& slots_;
};

class ThreadIn final : public In {
 public:
  explicit ThreadIn(Queue& queue) : queue_(queue) {}
  const std::uint64_t* receive() override { return queue_.receive(); }
  void release() override { queue_.release(); }

 private:
  Queue& queue_;
};

class ThreadGroup final : public Group {
 public:
  explicit ThreadGroup(std::ptrdiff_t tasks) : barrier_(tasks) {}
  void barrier() override { barrier_.arrive_and_wait(); }
  std::uint64_t agree(unsigned task, std::uint64_t value) override {
    if (task == 0) said_ = value;
    barrier_.arrive_and_wait();
    const std::uint64_t said = said_;
    barrier_.arrive_and_wait();
    return said;
  }

 private:
  std::barrier<> barrier_;
  std::uint64_t said_ = 0;
};

}  // namespace synth
