// Tests rows P1 to P17 of the table in ../conformance.md: ports.
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <numeric>
#include <optional>
#include <set>
#include <thread>

#include "suite.hpp"

namespace suite {
namespace {

using doubles = crossdock::vector<double>;

void send_tag(crossdock::port& p, std::uint64_t tag) { p.send_handle({}, tag, 0, wait); }
std::uint64_t take(crossdock::port& p) {
  auto m = p.receive<void>(wait);
  const auto tag = m.tag();
  std::move(m).release();
  return tag;
}
void is_closed(crossdock::port& p) { FAILS(closed, SAYS(""), p.receive<void>(wait)); }

void order(const part& me) {
  auto p = port(me.role == "B" ? consumer : producer, pattern::one_to_one, 4);
  if (me.role == "B") {
    for (std::uint64_t i = 0; i < 1000; ++i) EQUAL(take(p), i);
    return is_closed(p);
  }
  process b("B");
  for (std::uint64_t i = 0; i < 1000; ++i) send_tag(p, i);
  p.close();
  b.ends_well();
}

void inline_bytes(const part& me) {
  using bytes = std::array<std::uint8_t, 24>;
  constexpr std::uint64_t big = (UINT64_C(1) << 63) + 1;
  auto p = port(me.role == "B" ? consumer : producer);
  if (me.role == "B") {
    auto m = p.receive<void>(wait);
    const auto got = m.value<bytes>();
    CHECK(m.tag() == big);
    for (std::size_t i = 0; i < 24; ++i) EQUAL(got[i], i);
    auto empty = p.receive<void>(wait);
    CHECK(empty.tag() == 0 && empty.inline_bytes().empty());
    FAILS(wrong_type, SAYS("bytes"), empty.value<int>());
    return;
  }
  process b("B");
  bytes all{};
  std::iota(all.begin(), all.end(), std::uint8_t{0});
  p.send_value(all, big, wait);
  send_tag(p, 0);
  // Sending 25 bytes does not compile; see tests/compile_fail/send_value_too_large.cpp.
  b.ends_well();
}

/// Tests that a message is not lost if the region of its object cannot be opened, because the process has no free
/// descriptor.
void message_stays() {
  const crossdock::session other{crossdock::connect_options{}};
  crossdock::region far(other, crossdock::create_only, name("far"), 1 << 20);
  far.simple<int>("x") = 7;
  crossdock::region farther(other, crossdock::create_only, name("farther"), 1 << 20);
  auto out = port_named("stays", producer);
  auto in = port_named("stays", consumer);
  out.send_handle(far.save(far.simple<int>("x")), 1, 0, wait);
  out.send_handle(farther.save(farther.simple<int>("x")), 2, 0, wait);
  (void)in.descriptor();
  const auto receive_without_descriptors = [&] {
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    rlimit none = before;
    const int next = ::dup(0);
    ::close(next);
    none.rlim_cur = static_cast<rlim_t>(next);
    ::setrlimit(RLIMIT_NOFILE, &none);
    auto tried = in.try_receive<int>(wait);
    ::setrlimit(RLIMIT_NOFILE, &before);
    return tried.status();
  };
  EQUAL(receive_without_descriptors(), status::no_space);
  CHECK(in.arm());
  {
    auto m = in.receive<int>(wait);
    CHECK(m.tag() == 1 && *m == 7);
  }
  CHECK(in.arm());
  EQUAL(receive_without_descriptors(), status::no_space);
  // After this end is closed, it cannot receive the second message any more. The next consumer gets this message.
  in.close();
  FAILS(closed, SAYS("closed"), in.receive<int>(wait));
  auto successor = port_named("stays", consumer);
  EQUAL(successor.receive<int>(wait).tag(), 2U);
  crossdock::remove_region(name("far"));
  crossdock::remove_region(name("farther"));
  crossdock::remove_port(name("stays"));
}

void handles(const part& me) {
  if (me.role.empty()) message_stays();
  auto p = port(me.role == "B" ? consumer : producer, pattern::one_to_one, 1);
  if (me.role == "B") {
    auto m = p.receive<doubles>(wait);
    EQUAL(std::accumulate(m->begin(), m->end(), 0.0), 500500.0);
    (*m)[0] = -1;
    std::move(m).release();
    return expect("go");
  }
  auto& v = region().container<doubles>("v");
  v.resize(1000);
  std::iota(v.begin(), v.end(), 1.0);
  p.send(v, wait);
  process b("B");
  CHECK(p.reclaim<doubles>(wait) == &v);
  const auto s = p.statistics();
  EQUAL(s.messages, 1U);
  EQUAL(s.bytes_handed_over, 8000U);
  EQUAL(s.bytes_copied, 0U);
  b.tell("go");
  b.ends_well();
  EQUAL(v[0], -1.0);
}

void credits(const part& me) {
  auto p = port(me.role == "B" ? consumer : producer, pattern::one_to_one, 2);
  if (me.role == "B") {
    expect("receive");
    auto first = p.receive<int>(wait);
    tell("received");
    expect("release");
    std::move(first).release();
    tell("released");
    return expect("go");
  }
  int& one = region().simple<int>("one");
  int& two = region().simple<int>("two");
  process b("B");
  p.send(one, wait);
  p.send(two, wait);
  EQUAL(p.try_send(one).status(), status::not_yet);
  b.tell("receive");
  b.expect("received");
  EQUAL(p.try_send(one).status(), status::not_yet);
  b.tell("release");
  b.expect("released");
  CHECK(p.reclaim<int>(wait) == &one);
  CHECK(p.try_send(one));
  b.tell("go");
  b.ends_well();
}

void deadlines(const part& me) {
  if (me.role == "idle producer") {
    auto p = port(producer);
    tell("there");
    return expect("go");
  }
  if (me.role == "idle consumer") {
    auto p = port_named("b", consumer, {.capacity = 1});
    auto m = p.receive<void>(wait);
    tell("received");
    return expect("go");
  }
  process idle("idle producer");
  idle.expect("there");
  auto in = port(consumer);
  double ms = took([&] { FAILS(timed_out, SAYS(name(), "peer"), in.receive<void>(200ms)); });
  CHECK(ms >= 199 && ms < 2000);
  idle.tell("go");
  idle.ends_well();

  process stuck("idle consumer");
  auto out = port_named("b", producer, {.capacity = 1});
  send_tag(out, 1);
  stuck.expect("received");
  ms = took([&] { FAILS(timed_out, SAYS(name("b"), "peer"), out.send_handle({}, 2, 0, 200ms)); });
  CHECK(ms >= 199 && ms < 2000);
  stuck.tell("go");
  stuck.ends_well();
}

void fan_out(const part& me) {
  auto p = port(me.role.empty() ? producer : consumer, pattern::fan_out, 8);
  if (!me.role.empty()) {
    tell("there");
    for (std::uint64_t i = 0; i < 100; ++i) EQUAL(take(p), i);
    return is_closed(p);
  }
  std::vector<std::unique_ptr<process>> all;
  for (const char* role : {"B", "C", "D"}) all.push_back(std::make_unique<process>(role));
  for (auto& one : all) one->expect("there");
  for (std::uint64_t i = 0; i < 100; ++i) send_tag(p, i);
  p.close();
  for (auto& one : all) one->ends_well();
}

void fan_in(const part& me) {
  auto p = port(me.role.empty() ? consumer : producer, pattern::fan_in, 8);
  if (!me.role.empty()) {
    const auto id = std::stoull(me.role);
    for (std::uint64_t i = 0; i < 100; ++i) send_tag(p, id * 1000 + i);
    return expect("go");
  }
  std::vector<std::unique_ptr<process>> all;
  for (const char* role : {"1", "2", "3"}) all.push_back(std::make_unique<process>(role));
  std::array<std::uint64_t, 4> next{};
  for (int i = 0; i < 300; ++i) {
    const auto tag = take(p);
    EQUAL(tag % 1000, next.at(tag / 1000)++);
  }
  for (auto& one : all) {
    one->tell("go");
    one->ends_well();
  }
}

/// Opens an end of the port through which the consumers of a work queue report the messages that they have received.
crossdock::port came(crossdock::port_end end) { return port_named("b", end, {pattern::fan_in, 8}); }

void work_queue(const part& me) {
  if (me.role.starts_with("producer")) {
    auto p = port(producer, pattern::work_queue, 8);
    tell("there");
    expect("start");
    const auto id = std::stoull(me.role.substr(9));
    for (std::uint64_t i = 0; i < 150; ++i) send_tag(p, id * 1000 + i);
    return p.close();
  }
  if (me.role.starts_with("consumer")) {
    auto p = port(consumer, pattern::work_queue, 8);
    auto out = came(producer);
    tell("there");
    for (;;) {
      auto m = p.try_receive<void>(wait);
      if (m.status() == status::closed) return out.close();
      send_tag(out, m.value().tag());
    }
  }
  // This producer's end stays open until all messages have arrived. Otherwise a consumer could get CLOSED before all
  // producers have opened the port.
  auto keep = port(producer, pattern::work_queue, 8);
  auto in = came(consumer);
  std::vector<std::unique_ptr<process>> all;
  for (const char* role : {"consumer 1", "consumer 2", "consumer 3", "producer 0", "producer 1"}) {
    all.push_back(std::make_unique<process>(role));
    all.back()->expect("there");
  }
  for (std::size_t i : {3, 4}) all[i]->tell("start");
  std::multiset<std::uint64_t> tags, expected;
  for (int i = 0; i < 300; ++i) tags.insert(take(in));
  keep.close();
  is_closed(in);
  for (auto& one : all) one->ends_well();
  for (std::uint64_t i = 0; i < 300; ++i) expected.insert(i / 150 * 1000 + i % 150);
  CHECK(tags == expected);
}

void producer_leaves(const part& me) {
  auto p = port(me.role == "B" ? producer : consumer);
  if (me.role == "B") {
    for (std::uint64_t i = 0; i < 3; ++i) send_tag(p, i);
    return p.close();
  }
  process b("B");
  for (std::uint64_t i = 0; i < 3; ++i) EQUAL(take(p), i);
  is_closed(p);
  b.ends_well();
}

void earlier_peers(const part& me) {
  if (me.role == "B") {
    auto out = port(producer);
    for (std::uint64_t i = 0; i < 3; ++i) send_tag(out, i);
    return out.close();
  }
  for (const bool again : {false, true}) {
    auto in = port(consumer);
    if (again) FAILS(timed_out, SAYS(name(), "no producer"), in.receive<void>(200ms));
    process b("B");
    for (std::uint64_t i = 0; i < 3; ++i) EQUAL(take(in), i);
    is_closed(in);
    b.ends_well();
  }
}

void producer_killed(const part& me) {
  auto p = port(me.role == "B" ? producer : consumer);
  if (me.role == "B") {
    for (std::uint64_t i = 0; i < 3; ++i) send_tag(p, i);
    die();
  }
  process b("B");
  for (std::uint64_t i = 0; i < 3; ++i) EQUAL(take(p), i);
  CHECK(took([&] { FAILS(peer_died, SAYS("peer"), p.receive<void>(wait)); }) < 2000);
  b.is_killed();
}

void consumer_killed(const part& me) {
  auto p = port(me.role.empty() ? producer : consumer);
  if (me.role == "B") {
    auto m = p.receive<void>(wait);
    EQUAL(m.tag(), 0U);
    die();
  }
  if (me.role == "C") {
    for (std::uint64_t i = 0; i < 3; ++i) EQUAL(take(p), i);
    return;
  }
  for (std::uint64_t i = 0; i < 3; ++i) send_tag(p, i);
  process("B").is_killed();
  process("C").ends_well();
}

void nothing_yet(const part&) {
  auto out = port(producer);
  auto in = port(consumer);
  FAILS(not_found, SAYS("no-such"), region().open<int>("no-such", crossdock::no_wait));
  const std::string before = crossdock_error_message();
  auto m = in.try_receive<void>();
  CHECK(!m && m.status() == status::not_yet && m.message().empty());
  EQUAL(before, std::string(crossdock_error_message()));
}

void descriptors(const part& me) {
  auto p = port(me.role == "B" ? producer : consumer);
  if (me.role == "B") {
    expect("send");
    send_tag(p, 5);
    return expect("go");
  }
  process b("B");
  CHECK(!p.arm());
  pollfd ready = {p.descriptor(), POLLIN, 0};
  EQUAL(::poll(&ready, 1, 50), 0);
  b.tell("send");
  EQUAL(::poll(&ready, 1, 2000), 1);
  p.disarm();
  EQUAL(p.receive<void>(crossdock::no_wait).tag(), 5U);
  b.tell("go");
  b.ends_well();
}

void second_producer(const part& me) {
  if (me.role == "B") {
    auto p = port(producer);
    tell("there");
    expect("close");
    p.close();
    tell("closed");
    return expect("go");
  }
  process b("B");
  b.expect("there");
  // region::port waits until the end is free. So the test calls the C function, and tells it not to wait.
  const crossdock_port_options options = CROSSDOCK_PORT_OPTIONS_INIT;
  crossdock_port* second = nullptr;
  FAILS(busy, SAYS(name()),
        crossdock::detail::check(crossdock_port_open(crossdock::session().get(), name().c_str(), CROSSDOCK_PRODUCER, &options, CROSSDOCK_NO_WAIT, &second)));
  b.tell("close");
  b.expect("closed");
  (void)port(producer);
  b.tell("go");
  b.ends_well();
}

void options_agree(const part&) {
  auto first = port(producer, pattern::one_to_one, 4);
  FAILS(invalid, SAYS(name()), port(consumer, pattern::one_to_one, 8));
  FAILS(invalid, SAYS(name()), port(consumer, pattern::fan_out, 4));
  auto as_made = port(consumer, pattern::any, 0);
  for (std::uint64_t i = 0; i < 4; ++i) send_tag(first, i);
  EQUAL(first.try_send(region().simple<int>("fifth")).status(), status::not_yet);
  for (std::uint64_t i = 0; i < 4; ++i) EQUAL(take(as_made), i);
}

void threads(const part&) {
  auto out = port(producer);
  auto in = port(consumer);
  std::thread sender([&] {
    for (std::uint64_t i = 0; i < 1000; ++i) send_tag(out, i);
  });
  for (std::uint64_t i = 0; i < 1000; ++i) EQUAL(take(in), i);
  sender.join();
}

}  // namespace

const std::vector<row>& port_rows() {
  static const std::vector<row> rows = {
      {"P1", "one to one, order", order},
      {"P2", "tag and inline bytes", inline_bytes},
      {"P3", "handle", handles},
      {"P4", "credits", credits},
      {"P5", "deadline names the peer", deadlines},
      {"P6", "fan-out", fan_out},
      {"P7", "fan-in", fan_in},
      {"P8", "work queue", work_queue},
      {"P9", "producer leaves", producer_leaves},
      {"P10", "producer killed", producer_killed},
      {"P11", "consumer killed", consumer_killed},
      {"P12", "not yet", nothing_yet},
      {"P13", "descriptor", descriptors},
      {"P14", "second producer", second_producer},
      {"P15", "options must agree", options_agree},
      {"P16", "threads", threads},
      {"P17", "earlier peers are history", earlier_peers},
  };
  return rows;
}

}  // namespace suite
