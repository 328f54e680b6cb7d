// Tests rows S1 to S19 of the table in ../conformance.md: series.
#include <algorithm>
#include <optional>
#include <thread>

#include "suite.hpp"

namespace suite {
namespace {

using crossdock::observer;
using crossdock::publisher;
using crossdock::series_options;
using crossdock::variable;
using crossdock::version;

std::vector<variable> u_only() { return {variable::of<double>("u", {4, 5})}; }
publisher publish_u(const series_options& options = {}) { return {name(), u_only(), options}; }
void fill(publisher& p, double v) { std::ranges::fill(p.span<double>("u"), v); }
bool shows(const version& v, double wanted) {
  return std::ranges::all_of(v.span<double>("u"), [&](double x) { return x == wanted; });
}
observer observe() { return observer(name(), wait); }

void describe(const part& me) {
  if (me.role == "B") {
    auto o = observe();
    const auto all = o.variables();
    EQUAL(all.size(), 2U);
    CHECK(std::string(all[0].name) == "u" && std::string(all[0].type) == "f64" && all[0].dimensions == 2);
    CHECK(std::string(all[1].name) == "n" && std::string(all[1].type) == "i32" && all[1].dimensions == 0);
    EQUAL(o.constant<double>("u", "dx"), 0.5);
    FAILS(not_found, SAYS("dy"), o.constant<double>("u", "dy"));
    const auto v = o.latest();
    EQUAL(v.sequence(), 1U);
    const auto u = v.span<double>("u");
    EQUAL(u.size(), 20U);
    for (std::size_t i = 0; i < u.size(); ++i) EQUAL(u[i], double(i));
    EQUAL(v.span<std::int32_t>("n")[0], 7);
    CHECK(v.shape("u") == std::vector<std::uint64_t>({4, 5}) && v.shape("n").empty());
    EQUAL(v.attribute<std::int64_t>("step"), 3);
    EQUAL(v.attribute<double>("time"), 0.25);
    EQUAL(v.attribute<std::string>("note"), "ab");
    FAILS(wrong_type, SAYS(""), v.attribute<double>("step"));
    EQUAL(v.attributes().size(), 3U);
    return;
  }
  publisher p(name(), {variable::of<double>("u", {4, 5}).with("dx", 0.5), variable::of<std::int32_t>("n")});
  auto u = p.span<double>("u");
  for (std::size_t i = 0; i < u.size(); ++i) u[i] = double(i);
  p.span<std::int32_t>("n")[0] = 7;
  EQUAL(p.publish({{"step", 3}, {"time", 0.25}, {"note", "ab"}}), 1U);
  process b("B");
  b.ends_well();
}

void stays(const part&) {
  auto p = publish_u();
  auto o = observe();
  // The program keeps a std::vector of its own, whose memory belongs to the series.
  std::vector<double, crossdock::series_allocator<double>> own(20, crossdock::series_allocator<double>(p, "u"));
  CHECK(own.data() == p.span<double>("u").data());
  for (std::size_t i = 0; i < own.size(); ++i) own[i] = double(i);
  p.publish();
  auto held = o.latest();
  for (int k = 1; k <= 20; ++k) {
    std::ranges::fill(own, 100 * k);
    p.publish();
  }
  for (std::size_t i = 0; i < 20; ++i) EQUAL(held.span<double>("u")[i], double(i));
  auto newest = o.latest();
  CHECK(newest.sequence() == 21 && shows(newest, 2000));
  held.refresh();
  CHECK(held.sequence() == 21 && shows(held, 2000));
  FAILS(busy, SAYS("u"), own.push_back(1));
  FAILS(busy, SAYS("u"), std::vector<double, crossdock::series_allocator<double>>(20, crossdock::series_allocator<double>(p, "u")));
  own = decltype(own)(own.get_allocator());
  CHECK(decltype(own)(20, crossdock::series_allocator<double>(p, "u")).data() == p.span<double>("u").data());
  // A vector whose elements were moved away still has its allocator. Using this vector again fails, because the vector
  // `taken` now uses the series' variable `u`.
  decltype(own) moved(20, crossdock::series_allocator<double>(p, "u"));
  auto taken = std::move(moved);
  FAILS(busy, SAYS("u"), moved.resize(3));
}

void waits(const part& me) {
  if (me.role == "B") {
    auto p = publish_u();
    p.publish();
    tell("one");
    expect("two");
    std::this_thread::sleep_for(200ms);
    fill(p, 2);
    p.publish();
    return expect("end");
  }
  process b("B");
  b.expect("one");
  auto o = observe();
  (void)o.latest();
  const double ms = took([&] { FAILS(timed_out, SAYS(name()), o.next(200ms)); });
  CHECK(ms >= 200 && ms < 2000);
  CHECK(o.try_next().status() == status::not_yet);
  b.tell("two");
  const auto v = o.next(wait);
  CHECK(v.sequence() == 2 && shows(v, 2));
  b.tell("end");
  b.ends_well();
}

void at(const part&) {
  auto p = publish_u({.keep = 2});
  auto o = observe();
  for (int k = 1; k <= 5; ++k) {
    fill(p, k);
    p.publish();
  }
  for (std::uint64_t k = 5; k >= 3; --k) CHECK(o.at(k).sequence() == k && shows(o.at(k), double(k)));
  FAILS(not_found, SAYS("1"), o.at(1));
  FAILS(not_yet, SAYS(""), o.at(9));
}

void observing_waits(const part& me) {
  if (me.role == "B") {
    std::this_thread::sleep_for(200ms);
    auto p = publish_u();
    p.publish();
    return expect("end");
  }
  FAILS(not_found, SAYS(name()), observer(name(), crossdock::no_wait));
  const double ms = took([&] { FAILS(timed_out, SAYS(name()), observer(name(), 200ms)); });
  CHECK(ms >= 200 && ms < 2000);
  process b("B");
  observe();
  b.tell("end");
  b.ends_well();
}

void one_publisher(const part& me) {
  if (me.role == "B") {
    auto p = publish_u();
    tell("up");
    return expect("end");
  }
  process b("B");
  b.expect("up");
  FAILS(exists, SAYS(name(), "peer"), publish_u());
  b.tell("end");
  b.ends_well();
}

void three(bool killed) {
  auto p = publish_u();
  for (int k = 1; k <= 3; ++k) {
    fill(p, k);
    p.publish();
  }
  tell("three");
  expect("go");
  if (killed) die();
  p.end();
}

void ends(const part& me) {
  if (me.role == "B") return three(false);
  process b("B");
  b.expect("three");
  auto before = observe();
  b.tell("go");
  b.ends_well();
  auto after = observe();
  for (auto* o : {&before, &after}) {
    const auto v = o->next(wait);
    CHECK(v.sequence() == 3 && shows(v, 3));
    FAILS(closed, SAYS(name()), o->next(wait));
    CHECK(o->state() == CROSSDOCK_SERIES_ENDED);
  }
}

void killed(const part& me) {
  if (me.role == "B") return three(true);
  process b("B");
  b.expect("three");
  auto o = observe();
  b.tell("go");
  b.is_killed();
  EQUAL(o.next(wait).sequence(), 3U);
  CHECK(took([&] { FAILS(peer_died, SAYS("peer"), o.next(wait)); }) < 2000);
  CHECK(o.state() == CROSSDOCK_SERIES_DIED && shows(o.latest(), 3));
  auto p = publish_u();
  fill(p, 9);
  p.publish();
  auto fresh = observe();
  CHECK(fresh.id() != o.id() && fresh.latest().sequence() == 1 && shows(fresh.latest(), 9) && shows(o.latest(), 3));
}

void begin(const part&) {
  auto p = publish_u();
  auto o = observe();
  fill(p, 1);
  p.publish();
  {
    auto next = p.begin();
    fill(p, 2);
    EQUAL(next.publish(), 2U);
  }
  CHECK(shows(o.latest(), 2));
  {
    auto next = p.begin();
    FAILS(busy, SAYS(""), p.begin());
    fill(p, 3);
  }
  CHECK(o.latest().sequence() == 2 && shows(o.latest(), 2));
  for (double x : p.span<double>("u")) EQUAL(x, 2.0);
}

void grows(const part&) {
  publisher p(name(), {variable::of<double>("u", {10}, {1000})});
  auto o = observe();
  p.publish();
  const auto first = o.latest();
  p.resize("u", {20});
  auto u = p.span<double>("u");
  EQUAL(u.size(), 20U);
  for (std::size_t i = 10; i < 20; ++i) EQUAL(u[i], 0.0);
  u[19] = 5;
  p.publish();
  const auto second = o.latest();
  CHECK(first.shape("u") == std::vector<std::uint64_t>{10} && second.shape("u") == std::vector<std::uint64_t>{20});
  EQUAL(second.span<double>("u")[19], 5.0);
  FAILS(invalid, SAYS("u"), p.resize("u", {1001}));
}

void full(const part&) {
  constexpr std::uint64_t n = 65536;
  publisher p(name(), {variable::of<double>("u", {n})}, {.capacity = 5 * n * 8 / 2, .full = CROSSDOCK_FULL_FAIL});
  auto o = observe();
  std::vector<version> held;
  auto next = [&] {
    fill(p, double(held.size() + 1));
    p.publish();
    held.push_back(o.latest());
  };
  FAILS(no_space, SAYS(name()), [&] {
    for (int i = 0; i < 12; ++i) next();
  }());
  const auto count = held.size();
  for (std::size_t i = 0; i < count; ++i) CHECK(shows(held[i], double(i + 1)));
  held.clear();
  p.publish();
  CHECK(shows(o.latest(), double(count + 1)));
}

void goes_on(const part&) {
  constexpr std::uint64_t n = 65536;
  {
    publisher p(name(), {variable::of<double>("u", {n})}, {.capacity = 5 * n * 8 / 2});
    auto o = observe();
    std::vector<version> held;
    std::uint64_t withheld = 0;
    for (int k = 1; k <= 12; ++k) {
      fill(p, k);
      if (p.publish() == 0) {
        ++withheld;
      } else {
        held.push_back(o.latest());
      }
    }
    CHECK(withheld >= 9 && p.statistics().withheld == withheld && p.statistics().no_space == 0);
    for (std::size_t i = 0; i < held.size(); ++i) CHECK(shows(held[i], double(i + 1)));
    const auto count = held.size();
    held.clear();
    EQUAL(p.publish(), count + 1);
    CHECK(shows(o.latest(), 12));
  }
  publisher p(name(), {variable::of<double>("u", {n})}, {.keep = 9});
  auto o = observe();
  for (int k = 1; k <= 12; ++k) {
    fill(p, k);
    EQUAL(p.publish(), std::uint64_t(k));
  }
  CHECK(shows(o.at(3), 3));
}

void taken_back(const part&) {
  constexpr std::uint64_t n = 65536;
  publisher p(name(), {variable::of<double>("u", {n})}, {.capacity = 5 * n * 8 / 2, .full = CROSSDOCK_FULL_TAKE_BACK});
  auto o = observe();
  fill(p, 1);
  p.publish();
  const auto one = o.latest();
  const auto read = one.span<double>("u");
  auto is_one = [&] { return std::ranges::all_of(read, [](double x) { return x == 1; }); };
  CHECK(is_one());
  fill(p, 2);
  p.publish();
  const auto two = o.latest();
  for (int k = 3; k <= 14; ++k) {
    fill(p, k);
    EQUAL(p.publish(), std::uint64_t(k));
  }
  CHECK(is_one() && shows(one, 1));
  FAILS(not_found, SAYS("take_back"), two.span<double>("u"));
}

void each(const part&) {
  auto p = publish_u({.keep = 2});
  auto o = observe();
  auto gives = [&](std::uint64_t sequence, std::uint64_t missed) {
    const auto v = o.each(wait);
    CHECK(v.sequence() == sequence && v.missed() == missed);
  };
  FAILS(not_yet, SAYS(""), o.each(crossdock::no_wait));
  for (int k = 0; k < 3; ++k) p.publish();
  for (std::uint64_t k = 1; k <= 3; ++k) gives(k, 0);
  FAILS(not_yet, SAYS(""), o.each(crossdock::no_wait));
  for (int k = 0; k < 5; ++k) p.publish();
  gives(6, 2);
  gives(7, 0);
  gives(8, 0);
  FAILS(timed_out, SAYS(name()), o.at(9, std::chrono::milliseconds(200)));
}

void normal_end(const part& me) {
  if (me.role == "B") {
    static auto* p = new publisher(publish_u());  // never deleted
    for (int k = 0; k < 3; ++k) p->publish();
    tell("three");
    expect("go");
    return;
  }
  process b("B");
  b.expect("three");
  auto o = observe();
  b.tell("go");
  b.ends_well();
  EQUAL(o.next(wait).sequence(), 3U);
  FAILS(closed, SAYS(name()), o.next(wait));
}

void stuck(const part& me) {
  constexpr int more = 40;
  if (me.role == "B") {
    auto o = observe();
    const auto held = o.latest();
    tell("held");
    expect("go");
    // If the suite runs across nodes, a new observer waits here until the newest version has arrived on its node.
    EQUAL(observe().latest().sequence(), more + 1U);
    CHECK(shows(held, 1));
    const auto newest = o.next(wait);
    EQUAL(newest.sequence(), more + 1U);
    CHECK(shows(newest, more + 1));
    return;
  }
  publisher p(name(), {variable::of<double>("u", {65536})}, {});
  fill(p, 1);
  p.publish();
  process b("B");
  b.expect("held");
  for (int k = 2; k <= more + 1; ++k) {
    fill(p, k);
    EQUAL(p.publish(), static_cast<std::uint64_t>(k));
  }
  EQUAL(p.statistics().withheld, 0U);
  b.tell("go");
  b.ends_well();
}

void differs(const part&) {
  publisher p(name(), {variable::of<double>("u", {262144})}, {.chunk = 4096});
  auto o = observe();
  p.publish();
  const auto one = o.latest();
  auto u = p.span<double>("u");
  u[100] = 1;
  p.touched("u", u.subspan(100, 1));
  p.publish();
  const auto two = o.latest();
  std::uint64_t bytes = 0;
  bool found = false;
  for (const auto& c : diff(one, two)) {
    EQUAL(c.variable, 0U);
    bytes += c.bytes;
    found = found || (c.from <= 800 && 800 < c.from + c.bytes);
  }
  CHECK(found && bytes <= 8192);
  CHECK(diff(two, two).empty());
}

void misuse(const part&) {
  auto p = publish_u();
  FAILS(not_found, SAYS("velocity"), p.span<double>("velocity"));
  p.publish({{"step", 1}});
  FAILS(wrong_type, SAYS("step"), p.publish({{"step", "one"}}));
  FAILS(invalid, SAYS("63"), p.publish({{"note", std::string(64, 'x')}}));
  FAILS(invalid, SAYS(name("b")), publisher(name("b"), {}));
  variable bad = variable::of<double>("u", {4});
  bad.type = "f65";
  FAILS(invalid, SAYS("f65"), publisher(name("b"), {bad}));
}

void left(const part&) {
  crossdock::session other{crossdock::connect_options{}};
  auto p = std::make_optional<publisher>(name(), u_only(), series_options{}, other);
  fill(*p, 1);
  p->publish();
  auto o = observe();
  EQUAL(o.next(wait).sequence(), 1U);
  FAILS(busy, SAYS("series"), other.close());
  fill(*p, 2);
  p->publish();
  CHECK(shows(o.next(wait), 2));
  p.reset();
  FAILS(closed, SAYS(name()), o.next(wait));
  other.close();
}

}  // namespace

const std::vector<row>& series_rows() {
  static const std::vector<row> rows = {
      {"S1", "describe and read", describe},
      {"S2", "a version stays as it was", stays},
      {"S3", "next waits", waits},
      {"S4", "at", at},
      {"S5", "observing waits", observing_waits},
      {"S6", "one publisher", one_publisher},
      {"S7", "publisher ends", ends},
      {"S8", "publisher killed", killed},
      {"S9", "begin and abandon", begin},
      {"S10", "growing variable", grows},
      {"S11", "full pool", full},
      {"S12", "diff", differs},
      {"S13", "misuse", misuse},
      {"S14", "a session is not left behind a series' back", left},
      {"S15", "a publisher is not stopped by its observers", goes_on},
      {"S16", "what was taken back is an error, or stays", taken_back},
      {"S17", "each, and at with a deadline", each},
      {"S18", "a normal end ends what is open", normal_end},
      {"S19", "a stuck observer costs one version", stuck},
  };
  return rows;
}

}  // namespace suite
