// Ports whose messages travel by MPI (Dhmem paper, section III-D3, Listing 8). The data stays in the region. Only the
// 64 bytes of a message are sent, with the handle in them. Credits come back in the same way.
//
//     dhmem::Port port = dhmem.port("n_port", dhmem::producer, dhmem::mpi);
//
// The two ends are ranks of one communicator (MPI_COMM_WORLD, or `mpi(comm)`) that have the region open. They find each
// other through an object `mpi-port/NAME` of the region. MPI must be initialised, with MPI_THREAD_MULTIPLE if several
// threads of the program call it. Tags 24000 to 28095 of the communicator are used.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <crossdock/crossdock.hpp>
#include <crossdock_mpi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace crossdock {
namespace detail::by_mpi {

using clock = std::chrono::steady_clock;

inline bool is_running() noexcept {
  int initialised = 0, finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  return initialised && !finalised;
}

/// Handles an MPI error if the communicator's error handler returns. Other error handlers end the program.
inline void check(int code, const std::string& port) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw error(status::system, "port '" + port + "' over MPI: " + std::string(text, static_cast<std::size_t>(length)));
}

/// Calls `done` again and again until it returns true or the deadline has passed, because MPI has no wait with a
/// deadline. Between the calls the function yields the CPU at first; after a while it sleeps briefly, so that a rank
/// that waits for long leaves the CPU to others. It calls `done` with `lock` held. It releases the lock between the
/// calls, so that other threads can use the port.
template <class Lock, class Done>
bool wait_for(timeout wait, Lock& lock, Done done) {
  const auto begin = clock::now();
  const auto limit = std::chrono::milliseconds(wait.milliseconds() == CROSSDOCK_WAIT ? 60'000 : wait.milliseconds());
  while (!done()) {
    const auto waited = clock::now() - begin;
    if (waited >= limit) return false;
    lock.unlock();
    if (waited < std::chrono::milliseconds(1)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    lock.lock();
  }
  return true;
}

/// A word in the region by which the two ends of a port find each other. The ends change the word only by
/// compare-and-swap. The parts of the word are:
///   bits 0-23 consumer's rank + 1 · 24-47 producer's rank + 1 · 48-51 log2(capacity) + 1 · 52-63 tag pair + 1
class meeting_place {
 public:
  meeting_place(const region& in, const std::string& name)
      : home_(in), word_(home_.simple<std::uint64_t>("mpi-port/" + name)), tags_(home_.simple<std::uint64_t>("mpi-ports")),
        used_(home_.simple<std::array<std::uint64_t, pairs / 64>>("mpi-port-tags")) {}

  /// Registers this rank for one end of the port. Returns the MPI tag of the port's messages; the tag of its credits is
  /// one higher.
  int enter(port_end end, int rank, const port_options& options, const std::string& name) {
    const std::uint64_t capacity = static_cast<std::uint64_t>(std::countr_zero(options.capacity)) + 1;
    std::atomic_ref<std::uint64_t> word(word_);
    std::uint64_t now = word.load(std::memory_order_acquire);
    tag_pair pair(*this);
    for (;;) {
      std::uint64_t next = now;
      if (next >> 52 == 0) next = (pair.take(name) + 1) << 52 | capacity << 48 | (now & both);
      if ((next >> 48 & 15) != capacity) {
        throw error(status::invalid, "port '" + name + "' over MPI has a capacity of " + std::to_string(1U << ((next >> 48 & 15) - 1)) + ", not " +
                                         std::to_string(options.capacity) + ": both ends must say the same");
      }
      const int taken = rank_in(next, end);
      if (taken >= 0 && taken != rank) {
        throw error(status::busy, "port '" + name + "' over MPI: this end is held by rank " + std::to_string(taken) + "; it must close it first");
      }
      next = (next & ~mask(end)) | static_cast<std::uint64_t>(rank + 1) << shift(end);
      if (word.compare_exchange_weak(now, next, std::memory_order_acq_rel)) {
        pair.keep_if(next >> 52);
        return 24000 + 2 * static_cast<int>((next >> 52) - 1);
      }
    }
  }
  /// Removes this rank's entry for one end of the port. The end that leaves last also removes the tags, so that a later
  /// port never receives messages of this port.
  void leave(port_end end) {
    std::atomic_ref<std::uint64_t> word(word_);
    std::uint64_t now = word.load(std::memory_order_acquire), next = 0;
    do {
      next = now & ~mask(end);
      if ((next & both) == 0) next = 0;
    } while (!word.compare_exchange_weak(now, next, std::memory_order_acq_rel));
    if (next == 0 && now >> 52 != 0) give_back((now >> 52) - 1);
  }
  /// The rank that has an end of the port, or -1 if no rank has it.
  int rank_at(port_end end) const { return rank_in(std::atomic_ref(word_).load(std::memory_order_acquire), end); }

 private:
  static constexpr std::uint64_t pairs = 2048;

  /// A pair of tags that this end takes for a port that has no tags yet. If the other end gives the port another pair
  /// first, the destructor makes this end's pair free again.
  class tag_pair {
   public:
    explicit tag_pair(meeting_place& of) : of_(of) {}
    tag_pair(const tag_pair&) = delete;
    tag_pair& operator=(const tag_pair&) = delete;
    ~tag_pair() {
      if (taken_) of_.give_back(number_);
    }
    /// Takes the next pair of tags that no open port uses. Pairs are taken round-robin, so that a pair is used again as
    /// late as possible.
    std::uint64_t take(const std::string& name) {
      for (std::uint64_t tries = 0; !taken_ && tries < pairs; tries++) {
        number_ = std::atomic_ref(of_.tags_).fetch_add(1) % pairs;
        const std::uint64_t bit = std::uint64_t{1} << number_ % 64;
        taken_ = (std::atomic_ref(of_.used_[number_ / 64]).fetch_or(bit, std::memory_order_acq_rel) & bit) == 0;
      }
      if (!taken_) throw error(status::busy, "port '" + name + "' over MPI: " + std::to_string(pairs) + " ports are open in this region, and no more can be; close one first");
      return number_;
    }
    /// Keeps the taken pair of tags if the port uses this pair: then the destructor does not make the pair free again.
    /// `of_port` is the number of the port's pair, plus 1.
    void keep_if(std::uint64_t of_port) noexcept { taken_ = taken_ && number_ + 1 != of_port; }

   private:
    meeting_place& of_;
    std::uint64_t number_ = 0;
    bool taken_ = false;
  };
  void give_back(std::uint64_t pair) noexcept {
    std::atomic_ref(used_[pair / 64]).fetch_and(~(std::uint64_t{1} << pair % 64), std::memory_order_acq_rel);
  }

  static constexpr std::uint64_t both = (std::uint64_t{1} << 48) - 1;
  static constexpr int shift(port_end end) noexcept { return end == producer ? 24 : 0; }
  static constexpr std::uint64_t mask(port_end end) noexcept { return std::uint64_t{0xffffff} << shift(end); }
  static constexpr int rank_in(std::uint64_t word, port_end end) noexcept { return static_cast<int>((word & mask(end)) >> shift(end)) - 1; }

  region home_;
  std::uint64_t& word_;
  std::uint64_t& tags_;
  std::array<std::uint64_t, pairs / 64>& used_;  ///< one bit for each pair: whether an open port uses the pair
};

/// A message that is being sent, with MPI's request for it.
struct letter {
  crossdock_message message{};
  MPI_Request request = MPI_REQUEST_NULL;
};
inline constexpr std::uint32_t farewell = 1;  ///< the value of `reserved` in the last message that an end sends

/// The place of one message in flight, from its sending until its credit is back.
struct slot {
  enum { empty, under_way, returned } state = empty;
  std::uint64_t order = 0;  ///< the order in which the credits came back
  letter out;
};

class mpi_transport;

/// Closed ports whose last messages have not been sent or received yet. A port does not wait for these messages when it
/// is closed, but MPI requires every message to be received. So `end` receives them in MPI_Finalize, which first
/// deletes the attributes of MPI_COMM_SELF and thereby calls `end`.
class afterlife {
 public:
  static afterlife& of_process() {
    static auto* one = new afterlife;  // never destroyed, because a port may be a static object that is destroyed later
    return *one;
  }
  void born(mpi_transport* port);
  void gone(mpi_transport* port) {
    const std::lock_guard lock(mutex_);
    alive_.erase(port);
  }
  /// `tag` is the tag of the messages that may still arrive. If `from` is negative, no more messages will arrive.
  void take(MPI_Comm comm, int from, int tag, std::vector<slot> slots, std::deque<letter> mail) {
    const std::lock_guard lock(mutex_);
    rest_.push_back({comm, from, tag, std::move(slots), std::move(mail)});
  }

 private:
  struct leftover {
    MPI_Comm comm;
    int from, tag;
    std::vector<slot> slots;
    std::deque<letter> mail;

    static bool sent(letter& out) {
      int done = 0;
      return MPI_Test(&out.request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done;
    }
    bool over() {
      for (int there = 1; from >= 0 && there;) {
        crossdock_message message{};
        if (MPI_Iprobe(from, tag, comm, &there, MPI_STATUS_IGNORE) != MPI_SUCCESS || !there) break;
        if (MPI_Recv(&message, sizeof message, MPI_BYTE, from, tag, comm, MPI_STATUS_IGNORE) != MPI_SUCCESS || message.reserved == farewell) from = -1;
      }
      bool all = from < 0;
      for (auto& s : slots) all = sent(s.out) && all;
      for (auto& m : mail) all = sent(m) && all;
      return all;
    }
  };
  static int finalise(MPI_Comm, int, void*, void*) {
    of_process().end();
    return MPI_SUCCESS;
  }
  void end();

  std::mutex mutex_;
  std::set<mpi_transport*> alive_;
  std::list<leftover> rest_;
  bool called_ = false;  ///< whether MPI_Finalize will call `end`
};

class mpi_transport final : public transport {
 public:
  mpi_transport(const region& in, const std::string& name, port_end end, const port_options& options, MPI_Comm comm)
      : name_(name), end_(end), comm_(comm), place_(in, name), slots_(options.capacity) {
    by_mpi::check(MPI_Comm_rank(comm_, &rank_), name_);
    tag_ = place_.enter(end, rank_, options, name_);
    afterlife::of_process().born(this);
  }
  ~mpi_transport() override {
    afterlife::of_process().gone(this);
    try {
      close();
    } catch (const error&) {  // errors are ignored, because no caller is left
    }
  }

  status send(const crossdock_message& message, std::uint64_t bytes, timeout wait) override {
    std::unique_lock lock(mutex_);
    demand(producer, "send");
    slot* to = nullptr;
    if (const status s = wait_place(wait, lock, to); s != status::ok) return s;
    to->out.message = message;
    to->out.message.position = statistics_.messages;
    to->out.message.reserved = 0;
    to->state = slot::under_way;
    post(to->out, tag_);
    statistics_.messages += 1;
    statistics_.bytes_handed_over += bytes + message.inline_length;
    return status::ok;
  }
  status reclaim(timeout wait, handle& was_there) override {
    std::unique_lock lock(mutex_);
    demand(producer, "reclaim");
    slot* place = nullptr;
    was_there = {};
    if (const status s = wait_place(wait, lock, place); s != status::ok) return s;
    if (slot* oldest = oldest_returned()) {
      was_there = oldest->out.message.handle;
      oldest->state = slot::empty;
    }
    return status::ok;
  }
  status receive(timeout wait, crossdock_message& message) override {
    std::unique_lock lock(mutex_);
    demand(consumer, "receive");
    const auto begin = clock::now();
    bool got = false;
    bool again = false;
    wait_for(wait, lock, [&] { return closed_ || (again = take_back(message)) || over_ || (got = arrived(tag_, message)); });
    statistics_.consumer_wait_ns += since(begin);
    demand(consumer, "receive");
    if (again) return status::ok;
    if (got && message.reserved == farewell) {
      over_ = true;
      got = false;
    }
    if (over_) throw error(status::closed, "port '" + name_ + "' over MPI: the producer left, and everything it sent was taken");
    if (!got) return late(wait, producer, "the message");
    unreleased_.push_back(message.position);
    statistics_.messages += 1;
    return status::ok;
  }
  void release(const crossdock_message& message) override {
    std::unique_lock lock(mutex_);
    demand(consumer, "release");
    if (std::erase(unreleased_, message.position) == 0) {
      throw error(status::invalid, "port '" + name_ + "' over MPI: message " + std::to_string(message.position) + " was not received here, or is released already");
    }
    std::erase_if(put_back_, [&](const crossdock_message& m) { return m.position == message.position; });
    statistics_.received += 1;
    if (over_) return;  // the producer has left, so it needs no credits
    crossdock_message credit = message;
    credit.reserved = 0;
    mail(credit, tag_ + 1);
  }
  void put_back(const crossdock_message& message) override {
    std::unique_lock lock(mutex_);
    demand(consumer, "put_back");
    if (std::ranges::find(unreleased_, message.position) == unreleased_.end() || is_put_back(message.position)) {
      throw error(status::invalid, "port '" + name_ + "' over MPI: message " + std::to_string(message.position) + " was not received here, or is released or put back already");
    }
    put_back_.push_back(message);
  }
  void wait_peer(timeout wait) override {
    std::unique_lock lock(mutex_);
    const bool there = wait_for(wait, lock, [&] { return closed_ || peer() >= 0; });
    demand(end_, "wait_peer");
    if (!there) (void)late(timeout(std::chrono::milliseconds(1)), other(), "the other end");
  }
  void close() override {
    std::unique_lock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    if (!is_running()) return;  // MPI_Finalize was called first, so no message can be sent to the peer
    crossdock_message bye{};
    bye.reserved = farewell;
    if (peer() >= 0) mail(bye, end_ == producer ? tag_ : tag_ + 1);
    afterlife::of_process().take(comm_, over_ ? -1 : peer(), end_ == producer ? tag_ + 1 : tag_, std::move(slots_), std::move(mail_));
    place_.leave(end_);
  }
  /// The counters of this end. The counters of the other end are not known here.
  crossdock_port_statistics statistics() override {
    std::unique_lock lock(mutex_);
    return statistics_;
  }
  void note_copied(std::uint64_t bytes) override {
    std::unique_lock lock(mutex_);
    statistics_.bytes_copied += bytes;
  }

 private:
  void demand(port_end end, const char* call) const {
    if (end != end_) throw error(status::invalid, "port '" + name_ + "' over MPI: " + call + " is for the " + (end == producer ? "producer" : "consumer") + "'s end");
    if (closed_) throw error(status::closed, "port '" + name_ + "' over MPI was closed by this program");
  }
  bool is_put_back(std::uint64_t position) const {
    return std::ranges::any_of(put_back_, [&](const crossdock_message& m) { return m.position == position; });
  }
  /// Takes the oldest message that the program has put back, and copies it to `message`. Returns false if there is none.
  bool take_back(crossdock_message& message) {
    const auto oldest = std::ranges::min_element(put_back_, {}, &crossdock_message::position);
    if (oldest == put_back_.end()) return false;
    message = *oldest;
    put_back_.erase(oldest);
    return true;
  }
  static std::uint64_t since(clock::time_point begin) {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(clock::now() - begin).count());
  }
  port_end other() const noexcept { return end_ == producer ? consumer : producer; }
  /// The rank at the other end, or −1 as long as it is not known.
  int peer() {
    if (peer_ < 0) peer_ = place_.rank_at(other());
    return peer_;
  }
  status late(timeout wait, port_end whom, const char* what) {
    if (wait.milliseconds() == 0) return status::not_yet;
    const int rank = peer();
    const std::string who = whom == producer ? "producer" : "consumer";
    throw error(status::timed_out, "port '" + name_ + "' over MPI: " + what + " did not come in time; " +
                                       (rank < 0 ? "no " + who + " has opened it" : "the " + who + " is rank " + std::to_string(rank)) + ". Wait longer, or see what it does");
  }

  void post(letter& out, int tag) {
    by_mpi::check(MPI_Isend(&out.message, sizeof out.message, MPI_BYTE, peer_, tag, comm_, &out.request), name_);
  }
  /// Sends a message that needs no slot of the port: a credit or a farewell.
  void mail(const crossdock_message& message, int tag) {
    for (auto& out : mail_) {
      int done = 0;
      by_mpi::check(MPI_Test(&out.request, &done, MPI_STATUS_IGNORE), name_);
      if (done) {
        out.message = message;
        return post(out, tag);
      }
    }
    mail_.emplace_back().message = message;
    post(mail_.back(), tag);
  }
  bool arrived(int tag, crossdock_message& message) {
    int there = 0;
    // If the other end left before this end saw it, its rank is unknown. But its messages are still in flight, so
    // messages of any rank are accepted.
    const int source = peer() < 0 ? MPI_ANY_SOURCE : peer();
    MPI_Status what;
    by_mpi::check(MPI_Iprobe(source, tag, comm_, &there, &what), name_);
    if (there) {
      peer_ = what.MPI_SOURCE;
      by_mpi::check(MPI_Recv(&message, sizeof message, MPI_BYTE, peer_, tag, comm_, MPI_STATUS_IGNORE), name_);
    }
    return there != 0;
  }
  void collect_credits() {
    crossdock_message credit{};
    while (!over_ && arrived(tag_ + 1, credit)) {
      if (credit.reserved == farewell) {
        over_ = true;
        return;
      }
      for (auto& s : slots_) {
        if (s.state == slot::under_way && s.out.message.position == credit.position) {
          // The other end has received the message of this slot, so this wait ends immediately.
          by_mpi::check(MPI_Wait(&s.out.request, MPI_STATUS_IGNORE), name_);
          s.state = s.out.message.handle.segment == 0 ? slot::empty : slot::returned;
          s.order = statistics_.received++;
        }
      }
    }
  }
  slot* oldest_returned() {
    slot* oldest = nullptr;
    for (auto& s : slots_) {
      if (s.state == slot::returned && (!oldest || s.order < oldest->order)) oldest = &s;
    }
    return oldest;
  }
  /// Waits until there is a consumer and a slot for the next message. `place` gets an empty slot if there is one, and
  /// otherwise the slot whose credit came back first.
  status wait_place(timeout wait, std::unique_lock<std::mutex>& lock, slot*& place) {
    const auto begin = clock::now();
    const bool there = wait_for(wait, lock, [&] {
      if (closed_) return true;
      if (peer() < 0) return false;
      collect_credits();
      if (over_) return true;
      for (auto& s : slots_) {
        if (s.state == slot::empty) place = &s;
      }
      if (!place) place = oldest_returned();
      return place != nullptr;
    });
    statistics_.producer_wait_ns += since(begin);
    demand(producer, "send");
    if (over_) throw error(status::closed, "port '" + name_ + "' over MPI: the consumer left");
    return there ? status::ok : late(wait, consumer, "a free place");
  }
  std::mutex mutex_;
  std::string name_;
  port_end end_;
  MPI_Comm comm_;
  int rank_ = 0;
  int tag_ = 0;
  int peer_ = -1;
  meeting_place place_;
  std::vector<slot> slots_;
  std::deque<letter> mail_;
  std::vector<std::uint64_t> unreleased_;
  std::vector<crossdock_message> put_back_;  ///< messages that were put back; receive returns them again
  bool over_ = false;    ///< whether the other end has sent its last message
  bool closed_ = false;  ///< whether this end is closed
  crossdock_port_statistics statistics_{};
};

inline void afterlife::born(mpi_transport* port) {
  const std::lock_guard lock(mutex_);
  alive_.insert(port);
  std::erase_if(rest_, [](leftover& old) { return old.over(); });
  int keyval = MPI_KEYVAL_INVALID;
  if (!called_ && MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, finalise, &keyval, nullptr) == MPI_SUCCESS) {
    called_ = MPI_Comm_set_attr(MPI_COMM_SELF, keyval, nullptr) == MPI_SUCCESS;
    MPI_Comm_free_keyval(&keyval);
  }
}

/// Called by MPI_Finalize: closes the open ends, and waits up to a second for their last messages. If a message does
/// not arrive, because the other rank never closed its end, the memory of this message is never freed, because MPI may
/// still read it.
inline void afterlife::end() {
  std::set<mpi_transport*> open;
  {
    const std::lock_guard lock(mutex_);
    open.swap(alive_);
    called_ = false;
  }
  for (auto* port : open) port->close();
  std::unique_lock lock(mutex_);
  const auto all_over = [&] {
    std::erase_if(rest_, [](leftover& old) { return old.over(); });
    return rest_.empty();
  };
  if (!wait_for(std::chrono::seconds(1), lock, all_over)) (void)new std::list<leftover>(std::move(rest_));
  rest_.clear();
}

}  // namespace detail::by_mpi

/// The transport that sends a port's messages by MPI. It supports only one-to-one ports.
class mpi_t {
 public:
  constexpr mpi_t() noexcept = default;
  /// Uses another communicator than MPI_COMM_WORLD. The communicator must outlive the port.
  mpi_t operator()(MPI_Comm comm) const noexcept {
    mpi_t other;
    other.comm_ = comm;
    other.given_ = true;
    return other;
  }
  /// Errors: invalid, if MPI is not running, if the pattern is not one-to-one, or if the capacity is not allowed or differs
  /// from that of the other end; busy, if another rank has this end.
  std::unique_ptr<transport> open(const region& in, const std::string& name, port_end end, const port_options& options) const {
    if (!detail::by_mpi::is_running()) throw error(status::invalid, "port '" + name + "' over MPI: open it between MPI_Init and MPI_Finalize");
    if (options.pattern != pattern::one_to_one && options.pattern != pattern::any) {
      throw error(status::invalid, "port '" + name + "' over MPI: only one-to-one ports travel by MPI; use low_level for the other patterns");
    }
    port_options full = options;
    if (full.capacity == 0) full.capacity = 8;
    if (full.capacity > 4096 || !std::has_single_bit(full.capacity)) {
      throw error(status::invalid, "port '" + name + "' over MPI: a capacity of " + std::to_string(full.capacity) + " is none; it is a power of two, 1 to 4096");
    }
    return std::make_unique<detail::by_mpi::mpi_transport>(in, name, end, full, given_ ? comm_ : MPI_COMM_WORLD);
  }

 private:
  MPI_Comm comm_{};
  bool given_ = false;
};
inline constexpr mpi_t mpi{};

}  // namespace crossdock
