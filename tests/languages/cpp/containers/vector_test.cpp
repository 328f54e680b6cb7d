// Tests that vector and string behave like those of std, in shared memory.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <stdexcept>
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

TEST_F(Ndarray, OutsideOfARegionKeepsItsElements) {
  ndarray<double> a({2, 3}, region);
  for (std::size_t i = 0; i < 6; ++i) a.data()[i] = static_cast<double>(i);
  a.reshape(a.shape(), crossdock::order::fortran);
  ASSERT_EQ(a.size(), 6U);
  EXPECT_EQ(a(0, 1), 2.0);
  a.reshape(a.shape().first(1));
  ASSERT_EQ(a.size(), 2U);
  EXPECT_EQ(a(1), 1.0);
  const auto refused = [&](std::size_t n) {
    try {
      a.reshape({n});
    } catch (const crossdock::error& e) {
      return e.status() == crossdock::status::no_space;
    }
    return false;
  };
  EXPECT_TRUE(refused(std::size_t{1} << 61));
  EXPECT_TRUE(refused((std::size_t{1} << 61) + 1));
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
