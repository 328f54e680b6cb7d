// One worker of the soak test, in C++. worker.c describes what it does.
//
//     worker NUMBER SECONDS
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <crossdock/crossdock.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>

namespace {

using namespace std::chrono_literals;
using crossdock::status;
using clock_type = std::chrono::steady_clock;
using words = std::span<std::int64_t>;

constexpr std::size_t elements = 4096, item_bytes = 50000;
constexpr auto shortly = 200ms;
constexpr auto slow = 4s;

[[noreturn]] void wrong(const char* what) {
  std::printf("WRONG %s\n", what);
  std::exit(3);
}

std::uint64_t mix(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

void fill(words out, std::uint64_t stamp) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::int64_t>(mix(stamp + i));
}

void check(const char* what, std::span<const std::int64_t> seen, std::uint64_t stamp) {
  for (std::size_t i = 0; i < seen.size(); ++i)
    if (static_cast<std::uint64_t>(seen[i]) != mix(stamp + i)) wrong(what);
}

// Tells whether the status is an expected one: it can come from kills, stops and restarts of processes, or from a lack
// of room. A session must outlive all of these, so the error that a session is over is not expected.
bool explained(status s, const std::string& message) {
  constexpr status all[] = {status::not_yet, status::timed_out, status::closed,   status::peer_died, status::not_found,
                            status::exists,  status::no_space,  status::busy};
  if (s == status::disconnected) return message.find("cannot be made again") == message.npos;
  return std::ranges::find(all, s) != std::end(all);
}

// Runs one part of a round and returns its status if that is an expected failure. An unexpected error ends the worker.
// If the part takes several seconds, a line is printed.
status works(const char* what, const std::function<void()>& part) {
  const auto began = clock_type::now();
  auto outcome = status::ok;
  std::string message = "OK";
  try {
    part();
  } catch (const crossdock::error& e) {
    outcome = e.status(), message = e.what();
  }
  if (const auto took = clock_type::now() - began; took > slow)
    std::printf("SLOW %.1f s: %s: %s\n", std::chrono::duration<double>(took).count(), what, message.c_str());
  if (outcome != status::ok && !explained(outcome, message)) {
    std::printf("UNEXPLAINED %s: %s\n", what, message.c_str());
    std::exit(4);
  }
  return outcome;
}

struct body {
  std::uint64_t tag, sum;
};

class worker {
 public:
  worker(unsigned number, crossdock::session session) : number_(number), half_(number % 2 != 0), session_(std::move(session)) {}

  void round(std::uint64_t stamp) {
    works("heap", [&] { heap(stamp); });
    const auto outcome = works("port", [&] { message(); });
    if (outcome == status::closed || outcome == status::disconnected) port_.reset(), from_ = 0;
    const auto seen = works("series", [&] { series(stamp); });
    if (half_ && seen != status::ok && seen != status::timed_out && seen != status::not_yet) observer_.reset();
    works("item", [&] { item(stamp); });
  }

 private:
  std::string name(char kind) const { return kind + std::to_string(number_ / 2); }

  void heap(std::uint64_t stamp) {
    if (!region_) {
      // The region has the size that the workers in the other languages use. The constructor of `region` would add the
      // size of the heap's own tables.
      crossdock_region* given = nullptr;
      crossdock::detail::check(crossdock_region_open(session_.get(), "heap", CROSSDOCK_OPEN_OR_CREATE, 256U << 20, CROSSDOCK_WAIT, &given));
      region_ = crossdock::region::taken(given, session_);
    }
    // A vector without a name. If the worker is killed before it destroys the vector, the vector stays in the region.
    auto& block = region_->create<crossdock::vector<std::int64_t>>();
    block.resize(1 + mix(stamp) % 300);
    fill(block.span(), stamp);
    check("block", block.span(), stamp);
    region_->destroy(block);
    auto& v = region_->container<crossdock::vector<std::int64_t>>("v" + std::to_string(number_));
    // The first element is the number from which the other elements were computed, or 0 while they are being written.
    if (v.size() > 1 && v[0] != 0) check("vector", v.span().subspan(1), static_cast<std::uint64_t>(v[0]));
    if (v.size() > 0) std::atomic_ref(v[0]).store(0);
    v.resize(2 + mix(stamp + 2) % 5000);
    fill(v.span().subspan(1), stamp | 1);
    std::atomic_ref(v[0]).store(static_cast<std::int64_t>(stamp | 1));
  }

  void message() {
    if (!region_) return;
    if (!port_)
      port_.emplace(region_->port(name('p'), half_ ? crossdock::consumer : crossdock::producer,
                                         {.pattern = crossdock::pattern::one_to_one, .capacity = 8, .persistent = true}));
    if (!half_) {
      const auto tag = static_cast<std::uint64_t>(getpid()) << 32 | (sent_ + 1);
      port_->send_value(body{tag, mix(tag)}, tag, shortly);
      ++sent_;
      return;
    }
    auto m = port_->receive<void>(shortly);
    const auto got = m.value<body>();
    if (got.tag != m.tag() || got.sum != mix(m.tag())) wrong("message");
    // Each message of a producer must arrive exactly once, and in the order of sending.
    if (m.tag() >> 32 == from_ && (m.tag() & 0xffffffffU) != received_ + 1) wrong("order of messages");
    from_ = m.tag() >> 32, received_ = m.tag() & 0xffffffffU;
    std::move(m).release();
  }

  void series(std::uint64_t stamp) {
    if (!half_) {
      if (!publisher_) publisher_.emplace(name('s'), std::vector{crossdock::variable::of<std::int64_t>("u", {elements})}, crossdock::series_options{}, session_);
      fill(publisher_->span<std::int64_t>("u"), stamp);
      publisher_->publish({{"stamp", static_cast<std::int64_t>(stamp)}});
      return;
    }
    if (!observer_) observer_.emplace(name('s'), shortly, session_);
    const auto version = observer_->next(shortly);
    check("version", version.span<std::int64_t>("u"), static_cast<std::uint64_t>(version.attribute<std::int64_t>("stamp")));
  }

  void item(std::uint64_t stamp) {
    if (half_) {
      auto i = crossdock::item::access(name('i'), shortly, session_);
      if (i.size() != item_bytes) wrong("size of the item");
      const auto all = i.as<std::int64_t>();
      check("item", all.subspan(1), static_cast<std::uint64_t>(all[0]));
      std::move(i).destroy();
      return;
    }
    auto made = crossdock::detail::as_result([&] { return crossdock::item::create(name('i'), item_bytes, {}, session_); });
    if (!made && made.status() != status::exists) throw crossdock::error(made.status(), "create");
    // If the item could not be made, it exists already, because the previous round did not hand it on.
    auto i = made ? std::move(*made) : crossdock::item::access(name('i'), crossdock::no_wait, session_);
    const auto all = i.as<std::int64_t>();
    fill(all.subspan(1), stamp | 1);
    all[0] = static_cast<std::int64_t>(stamp | 1);
    std::move(i).transfer("w" + std::to_string(number_ ^ 1U));
  }

  unsigned number_;
  bool half_;
  crossdock::session session_;
  std::optional<crossdock::region> region_{};
  std::optional<crossdock::port> port_{};
  std::optional<crossdock::publisher> publisher_{};
  std::optional<crossdock::observer> observer_{};
  std::uint64_t sent_ = 0, received_ = 0, from_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto number = static_cast<unsigned>(std::atoi(argv[1]));
  const auto until = clock_type::now() + std::chrono::duration<double>(std::atof(argv[2]));
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  crossdock::connect_options options;
  options.task = "w" + std::to_string(number), options.private_daemon = false, options.timeout = 10s;
  std::optional<crossdock::session> session;
  while (works("connect", [&] { session.emplace(options); }) != status::ok) {
    if (clock_type::now() > until) return 0;
    std::this_thread::sleep_for(20ms);
  }
  worker work(number, *session);
  auto told = clock_type::now();
  std::chrono::duration<double> longest{0};
  std::uint64_t rounds = 0;
  auto stamp = mix(static_cast<std::uint64_t>(getpid())) >> 2;
  while (clock_type::now() < until) {
    const auto began = clock_type::now();
    work.round(stamp++);
    ++rounds;
    longest = std::max<std::chrono::duration<double>>(longest, clock_type::now() - began);
    if (clock_type::now() - told > 1s) {
      std::printf("%llu %.3f\n", static_cast<unsigned long long>(rounds), 1000 * longest.count());
      told = clock_type::now(), longest = {};
    }
  }
  std::printf("DONE %llu\n", static_cast<unsigned long long>(rounds));
}
