// Tests rows I1 to I16 of the table in ../conformance.md: items.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <utility>

#include "suite.hpp"

namespace suite {
namespace {

using crossdock::item;
using crossdock::item_options;
using crossdock::level;
using crossdock::no_wait;
using crossdock::on_death;
using crossdock::shared_item;

item create(std::uint64_t size, const std::string& suffix = {}) { return item::create(name(suffix), size, {}); }
item take(const std::string& suffix = {}) { return item::access(name(suffix), wait); }
crossdock_item_info info(const std::string& suffix = {}) { return item::find(name(suffix)); }
bool there(const std::string& suffix = {}) { return item::exists(name(suffix)); }
bool belongs_to(const crossdock_item_info& i, const std::string& task) {
  const std::string owner = i.owner;
  return owner == task || owner.starts_with(task + "/");
}

void fill(item& i, unsigned char value) { std::ranges::fill(i.bytes(), std::byte{value}); }
template <class Item>
bool all(Item& i, unsigned char value, std::size_t from = 0) {
  return std::ranges::all_of(i.bytes().subspan(from), [&](std::byte b) { return b == std::byte{value}; });
}

void made_and_gone(const part&) {
  CHECK(!there());
  FAILS(not_found, SAYS(name()), info());
  auto i = create(10000);
  CHECK(i.size() == 10000 && all(i, 0) && i.key() == name());
  fill(i, 1);
  const auto known = info();
  CHECK(known.size == 10000 && known.mine && belongs_to(known, "test"));
  FAILS(exists, SAYS(name(), "test"), create(10000));
  std::move(i).destroy();
  CHECK(!there());
  create(10000).destroy();

  // No more references to the session can be made, so the call fails. The item that the call has made before it fails
  // must not stay open.
  std::vector<crossdock::session> references;
  try {
    for (;;) references.emplace_back(references.empty() ? crossdock::session() : references.front());
  } catch (const crossdock::error&) {
  }
  const auto s = std::move(references.back());
  FAILS(invalid, SAYS("16383"), item::create(name(), 10000, {}, s));
  references.clear();
  take().destroy();
}

void there_and_back(const part& me) {
  constexpr level levels[] = {level::verified, level::strict, level::cooperative};
  const char* const suffixes[] = {"", "b", "c"};
  std::optional<process> b;
  if (me.role.empty()) b.emplace("B");
  for (int n = 0; n < 3; ++n) {
    if (!me.role.empty()) {
      auto i = take(suffixes[n]);
      CHECK(i.size() == 1000000 && all(i, 7));
      i.bytes()[0] = std::byte{9};
      std::move(i).transfer("test");
      continue;
    }
    auto i = item::create(name(suffixes[n]), 1000000, {levels[n], on_death::keep});
    fill(i, 7);
    std::move(i).transfer("peer");
    auto back = take(suffixes[n]);
    CHECK(back.bytes()[0] == std::byte{9} && all(back, 7, 1));
    std::move(back).destroy();
  }
  if (b) b->ends_well();
}

void to_absent_task(const part& me) {
  if (!me.role.empty()) {
    auto i = take();
    CHECK(all(i, 4));
    return std::move(i).destroy();
  }
  auto i = create(5000);
  fill(i, 4);
  std::move(i).transfer("peer");
  CHECK(!info().mine && belongs_to(info(), "peer"));
  process("B").ends_well();
}

void waiting_has_it(const part& me) {
  if (!me.role.empty()) {
    auto i = create(4096);
    tell("made");
    expect("go");
    std::this_thread::sleep_for(200ms);
    return std::move(i).transfer("test");
  }
  process b("B");
  b.expect("made");
  b.tell("go");
  const double ms = took([] { take().destroy(); });
  CHECK(ms >= 150 && ms <= 2000);
  b.ends_well();
}

void deadline(const part& me) {
  if (!me.role.empty()) {
    auto i = create(4096);
    tell("made");
    expect("done");
    return std::move(i).destroy();
  }
  process b("B");
  b.expect("made");
  const auto polled = item::try_access(name(), no_wait);
  CHECK(!polled && polled.status() == status::not_yet);
  const double ms = took([] { FAILS(timed_out, SAYS(name(), "peer"), item::access(name(), 200ms)); });
  CHECK(ms >= 190 && ms <= 2000);
  b.tell("done");
  b.ends_well();
}

void spent(const part& me) {
  if (!me.role.empty()) {
    auto i = take();
    CHECK(all(i, 8));
    return std::move(i).destroy();
  }
  auto i = create(4096);
  fill(i, 8);
  // In C, this row also tests a second reference to the item. A C++ program cannot have a second reference.
  std::move(i).transfer("peer");
  // If assertions are on, a program that uses a moved-from item is ended. If assertions are off, the use throws an
  // error.
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(2);
    (void)i.size();
    ::_exit(0);
  }
  int ended = 0;
  ::waitpid(child, &ended, 0);
#ifdef NDEBUG
  CHECK(!WIFEXITED(ended) || WEXITSTATUS(ended) != 0);
#else
  CHECK(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGABRT);
#endif
  process("B").ends_well();
}

void copies(const part&) {
  auto i = create(100000);
  fill(i, 5);
  auto copy = i.copy(name("b"));
  FAILS(exists, SAYS(name("b")), i.copy(name("b")));
  fill(i, 6);
  CHECK(all(copy, 5) && all(i, 6));
  std::move(i).destroy();
  CHECK(all(copy, 5) && info("b").mine);
  std::move(copy).destroy();
}

void shared(const part& me) {
  if (!me.role.empty()) {
    {
      auto i = shared_item::read(name(), wait);
      CHECK(i.size() == 50000 && all(i, 3));
      int writable = 1;
      crossdock_item_writable(i.get(), &writable);
      CHECK(!writable);
      tell("reading");
      expect("let go");
    }
    tell("gone");
    expect("again");
    FAILS(not_yet, SAYS(""), shared_item::read(name(), no_wait));
    return;
  }
  auto mine = create(50000);
  fill(mine, 3);
  auto all_s = std::move(mine).share();
  CHECK(all(all_s, 3));
  process b("B");
  b.expect("reading");
  CHECK(info().state == CROSSDOCK_ITEM_SHARED && info().readers == 2);
  b.tell("let go");
  b.expect("gone");
  auto again = std::move(all_s).unshare(wait);
  CHECK(all(again, 3));
  fill(again, 4);
  b.tell("again");
  b.ends_well();
  std::move(again).destroy();
}

void resized(const part&) {
  auto i = create(4096);
  fill(i, 5);
  i.resize(1000000);
  CHECK(i.size() == 1000000 && all(i, 0, 4096) && std::ranges::all_of(i.bytes().first(4096), [](std::byte b) { return b == std::byte{5}; }));
  i.resize(100);
  CHECK(i.size() == 100 && all(i, 5));
  FAILS(invalid, SAYS("0"), i.resize(0));
  CHECK(i.size() == 100 && all(i, 5));
  std::move(i).destroy();
}

void bad_arguments(const part&) {
  FAILS(invalid, SAYS("0"), create(0));
  try {
    (void)create(UINT64_C(1) << 60);
    CHECK(false);
  } catch (const crossdock::error& e) {
    CHECK(e.status() == status::no_space || e.status() == status::invalid);
  }
  FAILS(invalid, SAYS("a b"), item::create("a b", 10, {}));
  FAILS(invalid, SAYS(""), item::create("", 10, {}));
  auto i = create(4096);
  fill(i, 2);
  for (const char* to : {"", "a b", "#x"}) FAILS(invalid, SAYS(""), std::move(i).transfer(to));
  CHECK(all(i, 2) && info().mine);  // the failed calls have not taken the item
  FAILS(not_found, SAYS(name("b")), info("b"));
  FAILS(not_found, SAYS(name("b")), item::access(name("b"), no_wait));
  std::move(i).destroy();
}

void twice(const part&) {
  {
    auto i = create(4096);
    fill(i, 6);
    FAILS(busy, SAYS(name()), item::access(name(), no_wait));
  }
  auto i = take();
  CHECK(all(i, 6));
  std::move(i).destroy();
}

void destroyed_meanwhile(const part& me) {
  if (!me.role.empty()) {
    tell("waiting");
    FAILS(not_found, SAYS(name()), take());
    return;
  }
  auto i = create(4096);
  process b("B");
  b.expect("waiting");
  std::this_thread::sleep_for(200ms);
  std::move(i).destroy();
  b.ends_well();
}

void any_of(const part& me) {
  if (!me.role.empty()) {
    auto first = create(4096);
    auto second = create(4096, "b");
    auto third = create(4096, "c");
    tell("made");
    std::this_thread::sleep_for(200ms);
    std::move(second).transfer("test");
    expect("done");
    std::move(first).destroy();
    return std::move(third).destroy();
  }
  process b("B");
  b.expect("made");
  auto i = item::access_any({name(), name("b"), name("c")}, wait);
  CHECK(i.key() == name("b"));
  FAILS(invalid, SAYS(""), item::access_any({}, wait));
  b.tell("done");
  std::move(i).destroy();
  b.ends_well();
}

void heap(const part& me) {
  using doubles = crossdock::vector<double>;
  if (!me.role.empty()) {
    auto i = take();
    {
      auto inside = i.region(crossdock::mode::open_only);
      auto& v = inside.open<doubles>("v", no_wait);
      CHECK(v.size() == 1000 && std::accumulate(v.begin(), v.end(), 0.0) == 500500.0);
      v.push_back(-1);
    }
    return std::move(i).transfer("test");
  }
  auto i = create(4 << 20);
  {
    auto inside = i.region(crossdock::mode::create_only);
    auto& v = inside.container<doubles>("v");
    v.resize(1000);
    std::iota(v.begin(), v.end(), 1.0);
    FAILS(busy, SAYS(name()), std::move(i).transfer("peer"));
  }
  std::move(i).transfer("peer");
  process b("B");
  auto back = take();
  {
    auto inside = back.region(crossdock::mode::open_only);
    auto& v = inside.open<doubles>("v", no_wait);
    CHECK(v.size() == 1001 && v[1000] == -1);
  }
  std::move(back).destroy();
  b.ends_well();
}

void death(const part& me) {
  if (me.role == "B") {
    auto keep = take();
    auto back = take("b");
    auto gone = take("c");
    tell("taken");
    die();
  }
  if (me.role == "C") return take().destroy();
  const std::pair<const char*, on_death> kinds[] = {{"", on_death::keep}, {"b", on_death::return_to_creator}, {"c", on_death::destroy}};
  for (const auto& [suffix, policy] : kinds) item::create(name(suffix), 4096, {level::verified, policy}).transfer("peer");
  process b("B");
  b.expect("taken");
  b.is_killed();
  CHECK(took([] { take("b").destroy(); }) <= 2000);
  for (int tries = 0; there("c") && tries < 200; ++tries) std::this_thread::sleep_for(10ms);
  CHECK(!there("c"));
  CHECK(!info().mine && belongs_to(info(), "peer"));
  process("C").ends_well();
}

void numbers(const part& me) {
  if (!me.role.empty()) {
    auto i = create(4096);
    fill(i, 1);
    return std::move(i).transfer(me.argument);
  }
  const auto number = 4000 + static_cast<std::uint64_t>(::getpid());
  crossdock::register_number(number);
  process b("B", "#" + std::to_string(number));
  auto i = take();
  CHECK(all(i, 1));
  b.ends_well();
  std::move(i).transfer("#" + std::to_string(number + 1));  // no task has it yet
  FAILS(not_yet, SAYS(""), item::access(name(), no_wait));
  crossdock::register_number(number + 1);
  take().destroy();
}

}  // namespace

const std::vector<row>& item_rows() {
  static const std::vector<row> rows = {
      {"I1", "create, find, destroy", made_and_gone},
      {"I2", "transfer there and back", there_and_back},
      {"I3", "to a task that is not there yet", to_absent_task},
      {"I4", "a waiting task gets it", waiting_has_it},
      {"I5", "deadline names the owner", deadline},
      {"I6", "a spent item is nothing", spent},
      {"I7", "copy", copies},
      {"I8", "share and unshare", shared},
      {"I9", "resize", resized},
      {"I10", "bad arguments", bad_arguments},
      {"I11", "access twice", twice},
      {"I12", "destroyed while others wait", destroyed_meanwhile},
      {"I13", "the first of several", any_of},
      {"I14", "a heap in an item", heap},
      {"I15", "owner's death", death},
      {"I16", "numbers", numbers},
  };
  return rows;
}

}  // namespace suite
