// Tests that vector and string behave like those of std, in shared memory.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fixture.hpp"

namespace containers {

/// A container whose type name is not in the grammar.
struct misnamed {
  explicit misnamed(const crossdock::allocator<int>& a) : numbers(a) {}
  crossdock::vector<int> numbers;
};

}  // namespace containers

template <>
struct crossdock::shareable<containers::misnamed> : std::true_type {};
template <>
struct crossdock::type_name<containers::misnamed> {
  static constexpr std::string_view value = "mis named";
};

namespace containers {
namespace {

using crossdock::ndarray;
using crossdock::string;
using crossdock::vector;

class Ndarray : public InRegion {};
class Vector : public InRegion {};
class String : public InRegion {};

/// A second region, with room for less than 1 MiB. It is removed at the end.
struct SmallRegion {
  explicit SmallRegion(const std::string& beside) : name(beside + ".small"), region(crossdock::create_only, name, 1 << 20) {}
  ~SmallRegion() { crossdock::remove_region(name); }
  SmallRegion(const SmallRegion&) = delete;
  SmallRegion& operator=(const SmallRegion&) = delete;

  std::string name;
  mutable crossdock::region region;
};

/// Tells whether a call fails because there is no room.
template <class Call>
bool refused(Call call) {
  try {
    call();
  } catch (const crossdock::error& e) {
    return e.status() == crossdock::status::no_space;
  }
  return false;
}

/// Applies the same random operations to both vectors, and compares them after each operation.
template <class T, class Make>
void behaves_as_std(vector<T>& ours, Make make) {
  std::vector<T> theirs;
  std::mt19937 random(7);
  const auto below = [&](std::size_t n) { return static_cast<std::ptrdiff_t>(random() % n); };
  for (int step = 0; step < 3000; ++step) {
    const T value = make(step);
    const std::size_t n = theirs.size();
    switch (random() % 12) {
      case 0: case 1: case 2: case 3: ours.push_back(value); theirs.push_back(value); break;
      case 4: if (n) { ours.pop_back(); theirs.pop_back(); } break;
      case 5: { const auto i = below(n + 1); ours.insert(ours.begin() + i, value); theirs.insert(theirs.begin() + i, value); } break;
      case 6: if (n) { const auto i = below(n); ours.erase(ours.begin() + i); theirs.erase(theirs.begin() + i); } break;
      case 7: { const auto m = static_cast<std::size_t>(below(60)); ours.resize(m, value); theirs.resize(m, value); } break;
      case 8: if (n) { ours.push_back(ours[n / 2]); theirs.push_back(T(theirs[n / 2])); } break;
      case 9: if (n) { const auto i = below(n); ours.erase(ours.begin() + i, ours.end()); theirs.erase(theirs.begin() + i, theirs.end()); } break;
      case 10: ours.shrink_to_fit(); break;
      default: { const auto i = below(n + 1); ours.insert(ours.begin() + i, {value, value}); theirs.insert(theirs.begin() + i, {value, value}); } break;
    }
    ASSERT_TRUE(std::ranges::equal(ours, theirs)) << "after step " << step;
  }
}

TEST_F(Vector, OfNumbersBehavesAsStd) {
  behaves_as_std(region.container<vector<int>>("v"), [](int i) { return i; });
}

TEST_F(Vector, OfBoolsIsBools) {
  auto& v = region.container<vector<bool>>("v");
  v.resize(10);
  bool* third = &v[3];
  *third = true;
  EXPECT_EQ(std::ranges::count(v, true), 1);
}

TEST_F(Vector, GrowsAndKeepsItsElements) {
  auto& v = region.container<vector<std::uint64_t>>("v");
  int moves = 0;
  for (std::uint64_t i = 0; i < 1'000'000; ++i) {
    const auto* before = v.data();
    v.push_back(i * i);
    moves += v.data() != before;
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(v.data()) % 64, 0U) << "elements are aligned to 64 bytes";
  }
  EXPECT_LT(moves, 25) << "growth is amortised";
  for (std::uint64_t i = 0; i < v.size(); ++i) ASSERT_EQ(v[i], i * i);
}

TEST_F(Vector, IteratorsArePointersAndRangesWork) {
  auto& v = region.container<vector<int>>("v");
  v = {5, 3, 9, 1};
  static_assert(std::contiguous_iterator<vector<int>::iterator>);
  static_assert(std::ranges::contiguous_range<vector<int>>);
  std::ranges::sort(v);
  EXPECT_TRUE(std::ranges::equal(v, std::vector{1, 3, 5, 9}));
  const std::span<int> view = v;
  EXPECT_EQ(std::accumulate(view.begin(), view.end(), 0), 18);
  EXPECT_EQ(*v.rbegin(), 9);
  EXPECT_THROW((void)v.at(4), std::out_of_range);
  EXPECT_EQ(erase(v, 3), 1U);
}

TEST_F(Vector, ResizedIsZero) {
  auto& v = region.container<vector<double>>("v");
  v.resize(100, 7.0);
  v.clear();
  v.resize(100);
  EXPECT_EQ(std::ranges::count(v, 0.0), 100);
}

TEST_F(Vector, CopiesAndMovesStayInTheirRegion) {
  auto& a = region.container<vector<string>>("a");
  auto& b = region.container<vector<string>>("b");
  a.emplace_back("a text that is long enough to need memory of its own");
  b = a;
  EXPECT_EQ(a, b);
  b = std::move(a);
  EXPECT_TRUE(a.empty());
  a.swap(b);
  EXPECT_EQ(a.size(), 1U);
  vector<string> on_stack(a);
  on_stack.emplace_back("second");
  b = std::move(on_stack);
  EXPECT_EQ(b[1], "second");
}

TEST_F(Vector, BetweenRegionsElementsMoveOneByOne) {
  crossdock::region other(crossdock::create_only, region_name() + ".other", 1 << 20);
  {
    auto& here = region.container<vector<string>>("v");
    auto& there = other.container<vector<string>>("v");
    here.emplace_back("here, in a string that is long enough to have memory");
    there.emplace_back("there");
    here.swap(there);
    EXPECT_EQ(here[0], "there");
    EXPECT_TRUE(here[0].get_allocator() == here.get_allocator()) << "what lies in a region points into that region";
    there = here;
    EXPECT_TRUE(there[0].get_allocator() == there.get_allocator());
    other.remove("v");
  }
  crossdock::remove_region(region_name() + ".other");
}

TEST_F(Vector, RecreatedWithAWrongTypeIsAsItWas) {
  region.container<vector<int>>("v") = {1, 2, 3};
  try {
    region.container<misnamed>(crossdock::recreate, "v");
    FAIL() << "there is no such type";
  } catch (const crossdock::error& e) {
    EXPECT_EQ(e.status(), crossdock::status::invalid) << e.what();
  }
  EXPECT_EQ(region.open<vector<int>>("v").size(), 3U);
}

TEST_F(Vector, RecreatedWhileItIsBeingMadeIsBusyAtOnce) {
  const crossdock_type type = crossdock::type_of<vector<int>>();
  crossdock_object object{};
  ASSERT_EQ(crossdock_object_claim(region.get(), "v", &type, CROSSDOCK_CREATE_ONLY, CROSSDOCK_NO_WAIT, &object), CROSSDOCK_OK);
  const auto begin = std::chrono::steady_clock::now();
  try {
    region.container<vector<int>>(crossdock::recreate, "v");
    FAIL() << "the object is being made";
  } catch (const crossdock::error& e) {
    EXPECT_EQ(e.status(), crossdock::status::busy) << e.what();
  }
  EXPECT_EQ(region.try_open<vector<int>>("v").status(), crossdock::status::not_yet);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30)) << "neither call waits";
  EXPECT_EQ(crossdock_object_abandon(region.get(), &object), CROSSDOCK_OK);
  EXPECT_EQ(region.container<vector<int>>(crossdock::recreate, "v").size(), 0U);
}

TEST_F(Vector, WithoutRoomIsAsItWas) {
  auto& v = region.container<vector<int>>("v");
  v = {1, 2, 3};
  try {
    v.resize(std::size_t{1} << 40);
    FAIL() << "there is no room for that";
  } catch (const crossdock::error& e) {
    EXPECT_EQ(e.status(), crossdock::status::no_space) << e.what();
  }
  EXPECT_TRUE(std::ranges::equal(v, std::vector{1, 2, 3}));
}

TEST_F(Vector, AssignedMoreThanThereIsRoomForIsAsItWas) {
  const SmallRegion small(region_name());
  auto& v = small.region.container<vector<int>>("v");
  v = {1, 2, 3};
  const auto is_as_it_was = [&] { return std::ranges::equal(v, std::vector{1, 2, 3}); };
  const std::vector<int> many(1 << 20, 7);
  EXPECT_TRUE(refused([&] { v = many; }) && is_as_it_was()) << v.size();
  EXPECT_TRUE(refused([&] { v.assign(many.begin(), many.end()); }) && is_as_it_was()) << v.size();
  EXPECT_TRUE(refused([&] { v.assign(many.size(), v[1]); }) && is_as_it_was()) << v.size();
  auto& there = region.container<vector<int>>("v");
  there = many;
  EXPECT_TRUE(refused([&] { v = there; }) && is_as_it_was()) << v.size();
  EXPECT_TRUE(refused([&] { v = std::move(there); }) && is_as_it_was()) << v.size();
  EXPECT_TRUE(std::ranges::equal(there, many)) << there.size();

  auto& texts = small.region.container<vector<string>>("texts");
  texts.emplace_back("old");
  auto& many_texts = region.container<vector<string>>("texts");
  many_texts.resize(1 << 16);
  EXPECT_TRUE(refused([&] { texts = std::move(many_texts); }));
  EXPECT_TRUE(texts.size() == 1 && texts[0] == "old" && many_texts.size() == 1 << 16) << texts.size();
}

TEST_F(Vector, SwapBetweenRegionsWithoutRoomChangesNothing) {
  const SmallRegion small(region_name());
  auto& a = small.region.container<vector<double>>("v");
  auto& b = region.container<vector<double>>("v");
  a.assign(1000, 1.0);
  b.assign(1'000'000, 2.0);
  const auto are_as_they_were = [&] {
    return a.size() == 1000 && b.size() == 1'000'000 && std::ranges::count(a, 1.0) == 1000 && std::ranges::count(b, 2.0) == 1'000'000;
  };
  EXPECT_TRUE(refused([&] { a.swap(b); }) && are_as_they_were()) << a.size() << " and " << b.size();
  a.assign(1000, 1.0);
  b.assign(1'000'000, 2.0);
  EXPECT_TRUE(refused([&] { b.swap(a); }) && are_as_they_were()) << a.size() << " and " << b.size();

  // The texts, not the vectors, are too large for the small region.
  auto& texts = small.region.container<vector<string>>("texts");
  auto& large_texts = region.container<vector<string>>("texts");
  texts.emplace_back("old");
  large_texts.emplace_back("new");
  large_texts.emplace_back(std::string(4 << 20, 'x'));
  const auto blocks = small.region.statistics().blocks + region.statistics().blocks;
  for (const bool first : {true, false}) {
    EXPECT_TRUE(refused([&] { first ? texts.swap(large_texts) : large_texts.swap(texts); }));
    ASSERT_TRUE(texts.size() == 1 && texts[0] == "old") << texts.size();
    ASSERT_TRUE(large_texts.size() == 2 && large_texts[0] == "new" && large_texts[1].size() == 4 << 20) << large_texts.size();
  }
  EXPECT_EQ(small.region.statistics().blocks + region.statistics().blocks, blocks);
}

TEST_F(Vector, SwapBetweenRegionsExchangesTheElements) {
  const SmallRegion small(region_name());
  auto& a = small.region.container<vector<int>>("v");
  auto& b = region.container<vector<int>>("v");
  a = {1, 2, 3};
  for (const std::vector<int>& other : {std::vector{4, 5, 6, 7, 8}, std::vector{9}, std::vector<int>{}}) {
    b = other;
    const std::vector<int> mine(a.begin(), a.end());
    swap(a, b);
    EXPECT_TRUE(std::ranges::equal(a, other) && std::ranges::equal(b, mine)) << a.size() << " and " << b.size();
    EXPECT_TRUE(a.get_allocator().base() == small.region.base() && b.get_allocator().base() == region.base());
  }
}

TEST_F(Vector, HeaderIsTheOneOfTheCFunctions) {
  auto& v = region.container<vector<double>>("v");
  v = {1, 2, 3};
  void* data = nullptr;
  std::uint64_t n = 0;
  ASSERT_EQ(crossdock_vector_view(region.get(), reinterpret_cast<crossdock_vector*>(&v), sizeof(double), &data, &n), CROSSDOCK_OK);
  EXPECT_EQ(data, v.data());
  EXPECT_EQ(n, 3U);
  ASSERT_EQ(crossdock_vector_resize(region.get(), reinterpret_cast<crossdock_vector*>(&v), sizeof(double), 1000), CROSSDOCK_OK);
  EXPECT_EQ(v.size(), 1000U);
  EXPECT_EQ(v[2], 3.0);
  EXPECT_EQ(v[999], 0.0);
}

TEST_F(String, ReadsAndWritesLikeText) {
  auto& s = region.container<string>("s");
  s = "cross";
  s += "dock";
  s += '!';
  EXPECT_EQ(s, "crossdock!");
  EXPECT_LT(s, "d");
  EXPECT_EQ(s.find("dock"), 5U);
  EXPECT_TRUE(s.starts_with("cross"));
  s += s;
  EXPECT_EQ(s.str(), "crossdock!crossdock!");
  s = s.substr(5, 4);
  EXPECT_EQ(s, "dock");
  s.erase(1, 2);
  EXPECT_EQ(s.str(), "dk");
  s.erase(2);
  EXPECT_THROW(s.erase(3), std::out_of_range);
  EXPECT_EQ(s.str(), "dk");
}

TEST_F(String, AssignedMoreThanThereIsRoomForIsAsItWas) {
  const SmallRegion small(region_name());
  auto& s = small.region.container<string>("s", std::string_view("precious"));
  auto& there = region.container<string>("s", std::string_view(std::string(8 << 20, 'x')));
  EXPECT_TRUE(refused([&] { s = there.view(); }) && s == "precious") << s.size();
  EXPECT_TRUE(refused([&] { s = there; }) && s == "precious") << s.size();
  EXPECT_TRUE(refused([&] { s = std::move(there); }) && s == "precious") << s.size();
  EXPECT_TRUE(refused([&] { swap(s, there); }) && s == "precious") << s.size();
  EXPECT_TRUE(refused([&] { swap(there, s); }) && s == "precious") << s.size();
  EXPECT_EQ(there.size(), 8U << 20);
}

TEST_F(Ndarray, WithoutRoomInItsRegionIsAsItWas) {
  using std::swap;
  const SmallRegion small(region_name());
  auto& a = small.region.container<ndarray<double>>("a");
  auto& b = region.container<ndarray<double>>("a");
  const auto are_as_they_were = [&] { return a.rank() == 2 && a.size() == 6 && a.data()[5] == 5 && b.size() == 1'000'000 && b.data()[999'999] == 9; };
  const auto fill = [&] {
    a.reshape({2, 3}, crossdock::order::fortran);
    a.data()[5] = 5;
    b.reshape({1'000'000});
    b.data()[999'999] = 9;
  };
  fill();
  EXPECT_TRUE(refused([&] { a = b; }) && are_as_they_were()) << a.size();
  EXPECT_TRUE(refused([&] { a = std::move(b); }) && are_as_they_were()) << a.size();
  EXPECT_TRUE(refused([&] { swap(a, b); }) && are_as_they_were()) << a.size() << " and " << b.size();
  fill();
  EXPECT_TRUE(refused([&] { swap(b, a); }) && are_as_they_were()) << a.size() << " and " << b.size();
}

TEST_F(Ndarray, SwapExchangesElementsShapesAndOrders) {
  using std::swap;
  const SmallRegion small(region_name());
  for (const auto* where : {&region, &small.region}) {
    auto& a = region.container<ndarray<double>>("a", std::initializer_list<std::size_t>{2, 3}, crossdock::order::fortran);
    ndarray<double> b({4}, *where);
    a(1, 2) = 5;
    b(3) = 7;
    swap(a, b);
    EXPECT_TRUE(a.rank() == 1 && a.extent(0) == 4 && a.order() == crossdock::order::c && a(3) == 7);
    EXPECT_TRUE(b.rank() == 2 && b.extent(1) == 3 && b.order() == crossdock::order::fortran && b(1, 2) == 5);
    EXPECT_TRUE(a.get_allocator().base() == region.base() && b.get_allocator().base() == where->base());
    ndarray<double> fresh(*where);
    swap(a, fresh);
    EXPECT_TRUE(a.rank() == 0 && a.empty() && fresh.size() == 4 && fresh(3) == 7);
    region.remove("a");
  }
}

TEST_F(Ndarray, OutsideOfARegionKeepsItsElements) {
  ndarray<double> a({2, 3}, region);
  for (std::size_t i = 0; i < 6; ++i) a.data()[i] = static_cast<double>(i);
  a.reshape(a.shape(), crossdock::order::fortran);
  ASSERT_EQ(a.size(), 6U);
  EXPECT_EQ(a(0, 1), 2.0);
  a.reshape(a.shape().first(1));
  ASSERT_EQ(a.size(), 2U);
  EXPECT_EQ(a(1), 1.0);
  EXPECT_TRUE(refused([&] { a.reshape({std::size_t{1} << 61}); }));
  EXPECT_TRUE(refused([&] { a.reshape({(std::size_t{1} << 61) + 1}); }));
  EXPECT_EQ(a.size(), 2U);
}

TEST_F(Ndarray, CopiesOfOneWithoutElementsHaveNone) {
  const auto has_none = [](const ndarray<double>& a) { return a.rank() == 0 && a.size() == 0 && !a.data(); };
  auto& fresh = region.container<ndarray<double>>("fresh");
  auto& a = region.container<ndarray<double>>("a");
  const auto blocks = region.statistics().blocks;
  const ndarray<double> copy(fresh);
  EXPECT_TRUE(has_none(copy)) << copy.size();
  a.reshape({2, 3});
  a = fresh;
  EXPECT_TRUE(has_none(a)) << a.size();
  EXPECT_EQ(region.statistics().blocks, blocks) << "the old elements' block is free";
  ndarray<double> numbers({4}, region);
  const ndarray<double> elsewhere(std::move(numbers));
  a.reshape({0});
  a = numbers;  // NOLINT(bugprone-use-after-move): what was moved from has no elements
  EXPECT_TRUE(has_none(a)) << a.size();
  a.reshape({});
  fresh = a;
  EXPECT_EQ(fresh.size(), 1U) << "one element without dimensions is not the same as none";
}

}  // namespace
}  // namespace containers
