// Tests that a process reads what another process wrote, at another address, by name and by handle. Also tests ports
// between threads.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <thread>

#include "fixture.hpp"

namespace containers {

using crossdock::map;
using crossdock::ndarray;
using crossdock::string;
using crossdock::unordered_map;
using crossdock::vector;
using namespace std::chrono_literals;

using deep = map<string, vector<unordered_map<int, string>>>;
constexpr auto long_text = "a text that is long enough to have a block of its own";

/// The second process, which is started as `containers --read REGION SEGMENT:OFFSET`. Its exit status is 0 if it reads
/// exactly what the first process wrote.
int read_in_second_process(const std::string& region_name, const std::string& handle_text) {
  // Another region is mapped first, so that this process maps the region at another address than the first process.
  crossdock::region elsewhere(crossdock::open_or_create, region_name + ".elsewhere", 1 << 20);
  crossdock::region r(crossdock::open_only, region_name);
  auto& d = r.container<deep>(crossdock::open_only, "deep");
  for (int i = 0; i < 50; ++i) {
    if (d.at("key " + std::to_string(i)).at(0).at(i) != long_text) return 1;
  }
  const auto colon = handle_text.find(':');
  const crossdock::handle h(std::stoull(handle_text.substr(0, colon)), std::stoull(handle_text.substr(colon + 1)));
  auto& numbers = r.load<vector<double>>(h);
  if (numbers.size() != 1000 || numbers[999] != 999) return 2;
  // The second process also changes the objects. The first process reads the changes when the second process has ended.
  numbers.resize(5000, 1.5);
  d["from the second"].emplace_back()[7] = long_text;
  for (int i = 0; i < 50; i += 2) d.erase(d.find("key " + std::to_string(i)));
  crossdock::remove_region(region_name + ".elsewhere");
  return 0;
}

/// A process that grows vectors until it is killed. It is started as `containers --grow REGION`.
int grow_until_killed(const std::string& region_name) {
  crossdock::region r(crossdock::open_only, region_name);
  auto& numbers = r.container<vector<std::uint64_t>>("numbers");
  auto& nested = r.container<vector<vector<int>>>("nested");
  for (;;) {
    numbers.push_back(numbers.size());
    if (numbers.size() % 5'000 == 0) {
      numbers.clear();
      numbers.shrink_to_fit();
    }
    nested.emplace_back();  // the new inner vector takes no memory: only the block of headers grows
    if (nested.size() == 200) {
      nested.clear();
      nested.shrink_to_fit();
    }
  }
}

/// A process that exchanges the contents of containers until it is killed. It is started as `containers --swap REGION`.
/// The object "how" says how: 0 by swap of vectors, 1 by moves of vectors, 2 by moves of ndarrays, 3 by swap of
/// ndarrays. When the process begins, it sets "how" to -1.
int swap_until_killed(const std::string& region_name) {
  crossdock::region r(crossdock::open_only, region_name);
  auto& v = r.open<vector<int>>("v");
  auto& w = r.open<vector<int>>("w");
  auto& a = r.open<ndarray<double>>("a");
  auto& b = r.open<ndarray<double>>("b");
  const int how = std::atomic_ref(r.open<int>("how")).exchange(-1);
  while (how == 0) v.swap(w);
  while (how == 1) {
    vector<int> elements(std::move(v));
    v = std::move(w);
    w = std::move(elements);
  }
  while (how == 3) a.swap(b);
  for (;;) {
    ndarray<double> numbers(std::move(a));
    a = std::move(b);
    b = std::move(numbers);
  }
}

/// A process that makes the objects of another process anew, although it has never used their types before. It is
/// started as `containers --recreate REGION`.
int recreate_in_second_process(const std::string& region_name) {
  crossdock::region r(crossdock::open_only, region_name);
  auto& m = r.container<map<int, double>>(crossdock::recreate, "m");
  if (!m.empty()) return 1;
  for (int i = 0; i < 1000; ++i) m.emplace(i, 1.0);
  try {
    r.simple<int>(crossdock::recreate, "u");
    return 2;
  } catch (const crossdock::error& e) {
    if (e.status() != crossdock::status::invalid) return 3;
  }
  try {
    r.container<vector<int>>(crossdock::recreate, "u");
    return 4;
  } catch (const crossdock::error& e) {
    if (e.status() != crossdock::status::invalid) return 5;
  }
  return r.contains("u") ? 0 : 6;
}

namespace {

class Process : public InRegion {};
class Port : public InRegion {};

TEST_F(Process, ASecondReadsWhatTheFirstWroteAndTheOtherWayRound) {
  auto& d = region.container<deep>("deep");
  for (int i = 0; i < 50; ++i) d["key " + std::to_string(i)].emplace_back()[i] = long_text;
  auto& numbers = region.container<vector<double>>("numbers");
  numbers.resize(1000);
  std::iota(numbers.begin(), numbers.end(), 0.0);
  const auto h = region.save(numbers);

  const std::string name = region_name();
  const std::string text = std::to_string(h.segment) + ":" + std::to_string(h.offset);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/proc/self/exe", "containers", "--read", name.c_str(), text.c_str(), nullptr);
    ::_exit(127);
  }
  int result = 0;
  ASSERT_EQ(::waitpid(child, &result, 0), child);
  ASSERT_EQ(result, 0) << "the second process did not see what was written";

  EXPECT_EQ(numbers.size(), 5000U);
  EXPECT_EQ(numbers[4999], 1.5);
  EXPECT_EQ(numbers[999], 999.0);
  EXPECT_EQ(d.size(), 26U);
  EXPECT_EQ(d.at("from the second").at(0).at(7), long_text);
  EXPECT_EQ(d.at("key 49").at(0).at(49), long_text);
}

TEST_F(Process, AKillInTheMiddleOfGrowthLeavesTheOldOrTheNewAndNoLeak) {
  const std::string name = region_name();
  auto& numbers = region.container<vector<std::uint64_t>>("numbers");
  auto& nested = region.container<vector<vector<int>>>("nested");
  for (int round = 0; round < 15; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::execl("/proc/self/exe", "containers", "--grow", name.c_str(), nullptr);
      ::_exit(127);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(15'000 + 337 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    std::this_thread::sleep_for(120ms);  // the daemon notices the death within 100 ms, and only then can heal() repair
    region.heal();
    ASSERT_LE(numbers.size(), numbers.capacity());
    for (std::size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], i) << "round " << round;
    ASSERT_LE(nested.size(), nested.capacity());
    for (const auto& inner : nested) {
      ASSERT_TRUE(inner.empty());
      ASSERT_EQ(inner.get_allocator().base(), region.base());
    }
  }
  // TearDown checks that no memory leaked.
}

TEST_F(Process, WhatASuccessorMakesOfAVectorIsNotOverwrittenWhenTheDeadIsHealed) {
  const std::string name = region_name();
  auto& numbers = region.container<vector<std::uint64_t>>("numbers");
  for (int round = 0; round < 15; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::execl("/proc/self/exe", "containers", "--grow", name.c_str(), nullptr);
      ::_exit(127);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(15'000 + 337 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    std::this_thread::sleep_for(120ms);
    (void)region.container<vector<std::uint64_t>>("numbers");  // this process opens the vector of the dead process
    numbers.clear();
    numbers.shrink_to_fit();
    for (std::uint64_t i = 0; i < 300; ++i) numbers.push_back(i);
    region.heal();
    ASSERT_EQ(numbers.size(), 300U) << "round " << round;
    for (std::uint64_t i = 0; i < 300; ++i) ASSERT_EQ(numbers[i], i) << "round " << round;
    ASSERT_TRUE(region.try_open<vector<std::uint64_t>>("numbers"));
  }
}

TEST_F(Process, AKillInTheMiddleOfASwapOrAMoveLeavesEachBlockWithOneOwner) {
  // The kill may leave the elements of a container without an owner, so the test has a region of its own, whose blocks
  // are not counted at the end.
  const std::string name = region_name() + ".swap";
  crossdock::region r(crossdock::create_only, name, 16 << 20);
  for (int round = 0; round < 150; ++round) {
    int& how = r.simple<int>("how");
    how = round % 4;
    auto& v = r.container<vector<int>>(crossdock::create_only, "v");
    auto& w = r.container<vector<int>>(crossdock::create_only, "w");
    auto& a = r.container<ndarray<double>>(crossdock::create_only, "a");
    auto& b = r.container<ndarray<double>>(crossdock::create_only, "b");
    v.resize(4, 4);
    w.resize(1000, 1000);
    a.reshape({8});
    b.reshape({40, 25});
    const auto* const few = v.data();
    const std::size_t room = v.capacity();

    const pid_t child = ::fork();
    if (child == 0) {
      ::execl("/proc/self/exe", "containers", "--swap", name.c_str(), nullptr);
      ::_exit(127);
    }
    int result = 0;
    while (std::atomic_ref(how).load() >= 0) {
      ASSERT_EQ(::waitpid(child, &result, WNOHANG), 0) << "the second process ended with " << result;
      std::this_thread::sleep_for(1ms);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(17 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);

    SCOPED_TRACE("round " + std::to_string(round));
    for (const char* object : {"v", "w"}) {
      const auto opened = r.try_open<vector<int>>(object);
      ASSERT_TRUE(opened) << opened.message();
    }
    for (const char* object : {"a", "b"}) {
      const auto opened = r.try_open<ndarray<double>>(object);
      ASSERT_TRUE(opened) << opened.message();
    }
    ASSERT_TRUE(!v.data() || v.data() != w.data()) << "two vectors own one block";
    ASSERT_TRUE(!a.data() || a.data() != b.data()) << "two ndarrays own one block";
    for (auto* each : {&v, &w}) {
      ASSERT_TRUE(each->data() || each->capacity() == 0) << each->capacity() << " elements nowhere";
      ASSERT_TRUE(each->data() != few || each->capacity() <= room) << each->capacity() << " of " << room;
      ASSERT_TRUE(std::ranges::all_of(*each, [&](int x) { return x == static_cast<int>(each->size()); }));
      each->resize(3000);  // the library checks the block before it gives the vector a larger one
    }
    for (auto* each : {&a, &b}) each->reshape({3000});
    for (const char* object : {"v", "w", "a", "b"}) r.remove(object);
  }
  crossdock::remove_region(name);
}

TEST_F(Process, AVectorWithANonsenseHeaderIsRefused) {
  auto& v = region.container<vector<double>>("v");
  v.resize(100);
  crossdock_vector honest{};
  std::memcpy(&honest, &v, sizeof honest);
  const auto write = [&](const crossdock_vector& header) { std::memcpy(static_cast<void*>(&v), &header, sizeof header); };
  for (const crossdock_vector& lie : {crossdock_vector{honest.region, INT64_C(1) << 60, 100, 128}, crossdock_vector{honest.region, honest.data, UINT64_C(1) << 50, UINT64_C(1) << 50},
                                      crossdock_vector{honest.region, honest.data, 200, 100}}) {
    write(lie);
    EXPECT_EQ(region.try_open<vector<double>>("v").status(), crossdock::status::corrupt);
    EXPECT_EQ(region.try_load<vector<double>>(region.save(v)).status(), crossdock::status::corrupt);
  }
  write(honest);
  EXPECT_EQ(region.open<vector<double>>("v").size(), 100U);
}

TEST_F(Process, ADamagedContainerIsRemovedAndMadeAnewWithoutHarmToMemoryOutsideTheRegion) {
  using texts = vector<string>;
  // What the damaged containers held is lost, so the test has a region of its own, whose blocks are not counted.
  const std::string name = region_name() + ".damaged";
  crossdock::region r(crossdock::create_only, name, 1 << 20);
  const std::array<std::uint64_t, 4> as_it_was = {1, 1, 42, 42};
  std::array<std::uint64_t, 4> bystander = as_it_was;  // memory of this process, of the size of a string
  const auto damage = [&](texts& v) {
    v.emplace_back(long_text);
    crossdock_vector header{};
    std::memcpy(&header, &v, sizeof header);
    header.data = reinterpret_cast<std::intptr_t>(&bystander) - reinterpret_cast<std::intptr_t>(&v) - static_cast<std::intptr_t>(offsetof(crossdock_vector, data));
    std::memcpy(static_cast<void*>(&v), &header, sizeof header);
  };
  damage(r.container<texts>("v"));
  EXPECT_EQ(r.try_open<texts>("v").status(), crossdock::status::corrupt);
  auto& again = r.container<texts>(crossdock::recreate, "v");
  EXPECT_EQ(bystander, as_it_was) << "container with recreate";
  EXPECT_TRUE(again.empty());
  damage(again);
  bystander = as_it_was;
  r.remove("v");
  EXPECT_EQ(bystander, as_it_was) << "remove";
  damage(r.container<texts>("v"));
  bystander = as_it_was;
  r.remove<texts>("v");
  EXPECT_EQ(bystander, as_it_was) << "remove with the type";
  EXPECT_FALSE(r.contains("v"));
  crossdock::remove_region(name);
}

TEST_F(Process, AMapThatIsMadeAnewGivesBackWhatItHeld) {
  const std::string name = region_name();
  const auto blocks = [&] { return region.statistics().blocks; };
  auto& m = region.container<map<int, double>>("m");
  auto& u = region.container<unordered_map<int, string>>("u");
  const auto empty = blocks();
  for (int i = 0; i < 1000; ++i) m.emplace(i, 1.0);
  for (int i = 0; i < 1000; ++i) u[i] = long_text;
  const auto full = blocks();
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/proc/self/exe", "containers", "--recreate", name.c_str(), nullptr);
    ::_exit(127);
  }
  int result = 0;
  ASSERT_EQ(::waitpid(child, &result, 0), child);
  EXPECT_EQ(blocks(), full) << "the second process made a map of as many elements anew";
  EXPECT_EQ(result, 0) << "the second process made an object anew whose type it does not know";
  EXPECT_EQ(u.at(999), long_text);
  region.simple<int>(crossdock::recreate, "m") = 1;
  region.container<vector<int>>(crossdock::recreate, "u");
  EXPECT_LE(blocks(), empty);
}

TEST_F(Process, ThreadsAllocateAtTheSameTime) {
  constexpr int count = 4;
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) {
    threads.emplace_back([this, t] {
      auto& m = region.container<map<int, string>>("m" + std::to_string(t));
      for (int round = 0; round < 20; ++round) {
        for (int i = 0; i < 200; ++i) m[i] = long_text;
        for (int i = 0; i < 200; i += 2) m.erase(i);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (int t = 0; t < count; ++t) {
    auto& m = region.container<map<int, string>>("m" + std::to_string(t));
    EXPECT_EQ(m.size(), 100U);
    for (const auto& [key, text] : m) ASSERT_EQ(text, long_text) << key;
  }
}

TEST_F(Port, HandsObjectsRoundAndGetsThemBack) {
  auto out = region.port(region_name(), crossdock::producer, {.capacity = 2});
  auto in = region.port(region_name(), crossdock::consumer, {.capacity = 2});
  std::thread consumer([&] {
    for (int i = 0; i < 1000; ++i) {
      auto m = in.receive<vector<int>>(10s);
      ASSERT_EQ(m.tag(), static_cast<std::uint64_t>(i));
      ASSERT_TRUE(std::ranges::all_of(*m, [&](int x) { return x == i; })) << "no task writes what is being read";
    }
  });
  std::vector<vector<int>*> unused = {&region.container<vector<int>>("a"), &region.container<vector<int>>("b")};
  for (int i = 0; i < 1000; ++i) {
    auto* v = unused.empty() ? out.reclaim<vector<int>>(10s) : unused.back();
    if (!unused.empty()) unused.pop_back();
    v->assign(100, i);
    out.send(*v, static_cast<std::uint64_t>(i), 10s);
  }
  consumer.join();
  EXPECT_EQ(out.statistics().bytes_handed_over, 400'000U);
}

TEST_F(Port, RecvKeepsItsMessageUntilTheNext) {
  auto out = region.port(region_name(), crossdock::producer, {.capacity = 1});
  auto in = region.port(region_name(), crossdock::consumer, {.capacity = 1});
  int& n = region.simple<int>("n");
  n = 41;
  out.send(n);
  EXPECT_EQ(&in.recv<int>(), &n);
  EXPECT_EQ(out.try_send(n).status(), crossdock::status::not_yet) << "the consumer still has it";
  in.done();
  EXPECT_EQ(out.reclaim<int>(1s), &n);
  out.send(n);
  (void)in.recv<int>();
}

TEST_F(Port, AMessageOfAnotherTypeIsRefusedAndItsPlaceGivenBack) {
  auto out = region.port(region_name(), crossdock::producer, {.capacity = 1});
  auto in = region.port(region_name(), crossdock::consumer, {.capacity = 1});
  out.send(region.simple<int>("n"));
  const auto wrong = in.try_receive<double>(1s);
  EXPECT_EQ(wrong.status(), crossdock::status::wrong_type) << wrong.message();
  EXPECT_NE(out.reclaim<int>(1s), nullptr);
}

TEST_F(Port, SmallValuesTravelInTheMessage) {
  struct small {
    double a;
    int b;
  };
  auto out = region.port(region_name(), crossdock::producer);
  auto in = region.port(region_name(), crossdock::consumer);
  auto& v = region.container<vector<int>>("v");
  out.send_value(small{1.5, 2}, 9);
  out.send_with(v, 3.5F, 10);
  auto first = in.receive<void>(1s);
  EXPECT_EQ(first.value<small>().b, 2);
  EXPECT_EQ(first.tag(), 9U);
  auto second = in.receive<vector<int>>(1s);
  EXPECT_EQ(second.value<float>(), 3.5F);
  EXPECT_EQ(&*second, &v);
  std::move(first).release();
}

TEST_F(Port, CopiesAtTheBoundaryAreCounted) {
  auto out = region.port(region_name(), crossdock::producer);
  auto in = region.port(region_name(), crossdock::consumer);
  auto& shared = region.container<vector<double>>("shared");
  const std::vector<double> own = {1, 2, 3};
  out.copy_into(shared, std::span<const double>(own));
  out.send(shared);
  std::vector<double> theirs;
  in.copy_from(in.recv<vector<double>>(), theirs);
  EXPECT_EQ(theirs, own);
  EXPECT_EQ(in.statistics().bytes_copied, 48U);
}

TEST_F(Port, ResultsSayWhyThereIsNone) {
  auto in = region.port(region_name(), crossdock::consumer);
  const auto nothing = in.try_receive<int>();
  EXPECT_FALSE(nothing);
  EXPECT_EQ(nothing.status(), crossdock::status::not_yet);
  const auto missing = region.try_open<int>("missing");
  EXPECT_EQ(missing.status(), crossdock::status::not_found);
  EXPECT_NE(missing.message().find("missing"), std::string_view::npos) << missing.message();
  EXPECT_THROW((void)missing.value(), crossdock::error);
  int& n = region.simple<int>("n");
  EXPECT_EQ(&region.try_open<int>("n").value(), &n);
}

}  // namespace
}  // namespace containers

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "--read") == 0) return containers::read_in_second_process(argv[2], argv[3]);
  if (argc == 3 && std::strcmp(argv[1], "--grow") == 0) return containers::grow_until_killed(argv[2]);
  if (argc == 3 && std::strcmp(argv[1], "--swap") == 0) return containers::swap_until_killed(argv[2]);
  if (argc == 3 && std::strcmp(argv[1], "--recreate") == 0) return containers::recreate_in_second_process(argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
