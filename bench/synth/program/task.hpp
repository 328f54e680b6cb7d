// The loop of one task. It takes one buffer from each incoming port and reads all of it; then it fills one buffer and
// sends it to each outgoing port. The written numbers follow from those that were read, so the last checksums prove all
// data correct.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "channel.hpp"
#include "work.hpp"

namespace synth {

inline std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

/// The ends of a task's ports. The code that makes them decides where the memory lies and which method carries the
/// data.
struct Ends {
  Slots own;     // the buffers that the task fills and, unless it has staged buffers, sends
  Slots staged;  // for a task with private data: the buffers to which it copies the data for its consumers
  std::vector<std::unique_ptr<In>> in;
  std::vector<std::unique_ptr<Out>> out;
  std::vector<std::unique_ptr<Out>> out_staged;
};

class Runner {
 public:
  Runner(const Graph& graph, unsigned task, Group& group, Ends& ends) : graph_(graph), task_(task), group_(group), ends_(ends) {}

  void run() {
    const std::uint64_t warm = until_all_ended(graph_.warmup);
    std::uint64_t iterations = graph_.iterations;
    if (graph_.trial_ns != 0) {
      // The second measurement decides how many iterations fit into the time of a trial. The first measurement is too
      // slow, because it uses memory for the first time.
      const std::uint64_t again = group_.agree(task_, std::clamp<std::uint64_t>(graph_.trial_ns / 8 / warm, 1, graph_.iterations));
      iterations = group_.agree(task_, std::clamp<std::uint64_t>(graph_.trial_ns / until_all_ended(again), 2, graph_.iterations));
    }
    lines_.clear();
    for (std::uint64_t t = 0; t < graph_.trials; ++t) trial(iterations);
    group_.barrier();
    Counts counts;
    for (auto& in : ends_.in) in->count(counts);
    for (auto* ports : {&ends_.out, &ends_.out_staged}) {
      for (auto& out : *ports) out->finish();
    }
    for (auto& in : ends_.in) in->finish();
    std::string all;
    for (const std::string& line : lines_) all += (all.empty() ? "" : ",") + line;
    std::printf("SYNTH {\"task\":%u,\"messages\":%llu,\"sleeps\":%llu,\"wakes\":%llu,\"trials\":[%s]}\n", task_, static_cast<unsigned long long>(counts.messages),
                static_cast<unsigned long long>(counts.sleeps), static_cast<unsigned long long>(counts.wakes), all.c_str());
    std::fflush(stdout);
  }

 private:
  /// Measures the nanoseconds of one iteration, at least 1. The time lasts until all tasks have ended, because a task
  /// without incoming ports ends before the other tasks have read its data.
  std::uint64_t until_all_ended(std::uint64_t iterations) {
    const std::uint64_t begin = now_ns();
    trial(iterations);
    group_.barrier();
    return std::max<std::uint64_t>(1, (now_ns() - begin) / std::max<std::uint64_t>(1, iterations));
  }

  /// All tasks begin a trial together. The trial lasts from the beginning of the first task to the end of the last
  /// task. ../measure.rs computes this time.
  void trial(std::uint64_t iterations) {
    group_.barrier();
    const std::uint64_t begin = now_ns();
    auto next = std::chrono::steady_clock::now();
    std::uint64_t all = 0;
    at_.clear();
    read_.clear();
    for (std::uint64_t i = 0; i < iterations; ++i) {
      if (graph_.latency) {
        other_work();
        group_.barrier();
      }
      const std::int64_t period = graph_.tasks[task_].period_ns;
      if (period > 0) {
        next += std::chrono::nanoseconds(period);
        std::this_thread::sleep_until(next);
      }
      all = mix(all, step_once(i));
    }
    const std::uint64_t end = now_ns();
    const std::string latency = graph_.latency ? ",\"at\":[" + joined(at_) + "],\"read\":[" + joined(read_) + "]" : "";
    lines_.push_back("{\"begin\":" + std::to_string(begin) + ",\"end\":" + std::to_string(end) + ",\"iterations\":" + std::to_string(iterations) +
                     ",\"checksum\":\"" + std::to_string(all) + "\"" + latency + "}");
  }

  std::uint64_t step_once(std::uint64_t i) {
    std::uint64_t seed = mix(task_ + 1, i);
    for (auto& in : ends_.in) {
      const unsigned from = from_[&in - ends_.in.data()];
      const std::uint64_t* data = in->receive();
      if (graph_.latency) at_.push_back(now_ns());
      seed = mix(seed, checksum(data, graph_.tasks[from].elements));
      if (graph_.latency) read_.push_back(now_ns());
      in->release();
    }
    const std::size_t own = ends_.own.place.size(), staged = ends_.staged.place.size();
    if (own != 0) {
      const unsigned slot = static_cast<unsigned>(turn_ % own);
      for (auto& out : ends_.out) out->ready(slot);
      fill(ends_.own.place[slot], ends_.own.elements, seed);
      if (graph_.latency) pause_before_sending();
      for (auto& out : ends_.out) out->send(slot);
      if (staged != 0) {
        const unsigned copy = static_cast<unsigned>(turn_ % staged);
        for (auto& out : ends_.out_staged) out->ready(copy);
        std::memcpy(ends_.staged.place[copy], ends_.own.place[slot], ends_.own.elements * 8);
        for (auto& out : ends_.out_staged) out->send(copy);
      }
      ++turn_;
    }
    return seed;
  }

  /// What a task does between two hand-overs: it writes enough bytes to replace all data in the caches. So the caches
  /// are as cold for a small buffer as for a large one, and a difference between two sizes comes from the hand-over
  /// itself.
  void other_work() {
    other_.resize(std::size_t{64} << 17);
    for (std::uint64_t& word : other_) word = word * 3 + 1;
  }

  /// Replaces the data in the caches, and then waits busily, without giving up this side's CPU. The wait is so long
  /// that the other side falls asleep. Notes the time after the wait.
  void pause_before_sending() {
    other_work();
    const std::uint64_t until = now_ns() + 20000000;
    while (now_ns() < until) {
    }
    at_.push_back(now_ns());
  }

  static std::string joined(const std::vector<std::uint64_t>& numbers) {
    std::string all;
    for (std::uint64_t n : numbers) all += (all.empty() ? "" : ",") + std::to_string(n);
    return all;
  }

  const Graph& graph_;
  unsigned task_;
  Group& group_;
  Ends& ends_;
  std::vector<unsigned> from_ = [this] {
    std::vector<unsigned> all;
    for (const Port& p : graph_.into(task_)) all.push_back(p.from);
    return all;
  }();
  std::uint64_t turn_ = 0;
  std::vector<std::string> lines_;
  std::vector<std::uint64_t> other_;
  std::vector<std::uint64_t> at_, read_;  // with latency: when each buffer was sent or received, and when it had been read
};

}  // namespace synth
