// Tests containers of containers to depth four. Each is made with the allocator of the region that it lies in.
#include <numeric>

#include "fixture.hpp"

namespace containers {
namespace {

using crossdock::allocator;
using crossdock::list;
using crossdock::map;
using crossdock::string;
using crossdock::unordered_map;
using crossdock::vector;

class Nested : public InRegion {};

/// The struct in Listing 4 of the Dhmem paper.
struct S {
  S(allocator<void> alloc) : v1(alloc), v2(alloc) {}
  vector<int> v1, v2;
};

/// A struct without a constructor, whose members get the allocator.
struct aggregate {
  vector<int> v;
  int n;
  string s;
  double x[3];
};
struct outer {
  aggregate inner;
  vector<aggregate> more;
};

/// A struct whose constructor takes the allocator as its first argument, as std::uses_allocator allows.
struct in_front {
  using allocator_type = allocator<char>;
  in_front(std::allocator_arg_t, const allocator_type& a, int number = 0) : n(number), name(a) {}
  int n;
  string name;
};

/// A struct that cannot be made without a number.
struct numbered {
  struct number {
    explicit number(int value) : n(value) {}
    int n;
  };
  vector<int> v;
  number at;
};

template <class V>
void expect_same_region(const V& inner, const crossdock::region& r) {
  EXPECT_EQ(inner.get_allocator().base(), r.base());
}

TEST_F(Nested, VectorsToDepthFour) {
  auto& v = region.container<vector<vector<vector<vector<int>>>>>("v");
  for (int i = 0; i < 4; ++i) {
    auto& a = v.emplace_back();
    for (int j = 0; j <= i; ++j) {
      auto& b = a.emplace_back();
      for (int k = 0; k <= j; ++k) b.emplace_back(static_cast<std::size_t>(k + 1), i * 100 + j * 10 + k);
    }
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j <= i; ++j)
      for (int k = 0; k <= j; ++k) {
        const auto& last = v[i][j][k];
        ASSERT_EQ(last.size(), static_cast<std::size_t>(k + 1));
        ASSERT_EQ(last.back(), i * 100 + j * 10 + k);
        expect_same_region(last, region);
      }
  auto& copy = region.container<vector<vector<vector<vector<int>>>>>("copy");
  copy = v;
  v.clear();
  EXPECT_EQ(copy[3][3][3][3], 333);
}

TEST_F(Nested, DifferentContainersToDepthFour) {
  using inner = list<vector<double>>;
  auto& um = region.container<unordered_map<string, map<int, inner>>>("um");
  for (int i = 0; i < 100; ++i) um["key " + std::to_string(i)][i % 7].emplace_back().assign({1.0 * i, 2.0 * i});
  EXPECT_EQ(um.size(), 100U);
  EXPECT_EQ(um.at("key 42").at(0).front()[1], 84.0);
  expect_same_region(um.at("key 9").at(2).front(), region);
  um.emplace("copy", um["key 3"]);
  EXPECT_EQ(um.at("copy").at(3).front()[0], 3.0);
}

TEST_F(Nested, StructsForwardTheAllocator) {
  S& s = region.container<S>("s");
  s.v1.push_back(5);
  auto& m = region.container<map<int, S>>("m");
  for (int i = 0; i < 50; ++i) m[i].v2.push_back(i);
  EXPECT_EQ(m.at(49).v2[0], 49);
  auto& v = region.container<vector<S>>("v");
  for (int i = 0; i < 50; ++i) v.emplace_back().v1.push_back(i);
  EXPECT_EQ(v[30].v1[0], 30);
  expect_same_region(v[30].v2, region);
}

TEST_F(Nested, AggregatesNeedNoConstructor) {
  auto& a = region.container<aggregate>("a");
  a.v.push_back(1);
  a.s = "text";
  EXPECT_EQ(a.n, 0);
  EXPECT_EQ(a.x[2], 0.0);
  auto& o = region.container<outer>("o");
  for (int i = 0; i < 20; ++i) {
    auto& more = o.more.emplace_back();
    more.v.resize(static_cast<std::size_t>(i), i);
    more.s = std::to_string(i);
  }
  EXPECT_EQ(o.more[13].v[12], 13);
  EXPECT_EQ(o.more[13].s, "13");
  o.inner = o.more[13];
  EXPECT_EQ(o.inner.s, "13");
}

TEST_F(Nested, CopiesOfStructsLieInTheRegionOfTheirContainer) {
  const std::string name = region_name() + ".other";
  crossdock::region other(crossdock::create_only, name, 1 << 20);
  {
    auto& here = region.container<vector<outer>>("v");
    auto& there = other.container<vector<outer>>("v");
    outer& o = here.emplace_back();
    o.inner.v = {1, 2, 3};
    o.more.emplace_back().s = "a text that is long enough to have a block of its own";
    const auto expect_copy = [&] {
      ASSERT_EQ(there.size(), 1U);
      expect_same_region(there[0].inner.v, other);
      expect_same_region(there[0].more, other);
      expect_same_region(there[0].more[0].s, other);
      EXPECT_EQ(there[0].inner.v[2], 3);
      EXPECT_EQ(there[0].more[0].s.size(), 53U);
    };
    there = here;
    expect_copy();
    there.swap(here);
    expect_same_region(here[0].more[0].s, region);
    expect_copy();
    there.clear();
    there = std::move(here);
    expect_copy();

    auto& structs = region.container<map<int, S>>("m");
    structs[1].v1 = {4, 5};
    auto& copies = other.container<vector<S>>("s");
    copies.push_back(structs[1]);
    copies.insert(copies.begin(), copies[0]);
    for (const S& s : copies) {
      expect_same_region(s.v1, other);
      EXPECT_EQ(s.v1[1], 5);
    }
    auto& numbers = other.container<vector<numbered>>("n");
    numbers.push_back({vector<int>(3, 6, other), numbered::number(7)});
    EXPECT_TRUE(numbers[0].v[2] == 6 && numbers[0].at.n == 7);
    for (const char* object : {"v", "s", "n"}) other.remove(object);
  }
  EXPECT_EQ(other.statistics().blocks, 0U);
  crossdock::remove_region(name);
}

TEST_F(Nested, TheAllocatorMayComeInFront) {
  auto& v = region.container<vector<in_front>>("v");
  for (int i = 0; i < 20; ++i) v.emplace_back(i).name = "a name that has memory of its own, number " + std::to_string(i);
  EXPECT_EQ(v[17].n, 17);
  EXPECT_TRUE(v[3].name.ends_with("number 3"));
}

TEST_F(Nested, RemovingByNameTakesEverythingApart) {
  auto& m = region.container<map<string, vector<map<int, string>>>>("m");
  for (int i = 0; i < 30; ++i) m["key " + std::to_string(i)].emplace_back()[i] = "a value that is long enough to need memory";
  const auto before = region.statistics().blocks;
  region.remove("m");
  EXPECT_LT(region.statistics().blocks + 100, before);
}

TEST_F(Nested, AConstructorThatThrowsLeavesNothing) {
  struct throwing {
    explicit throwing(allocator<void> a) : v(a) {
      v.resize(100);
      throw std::runtime_error("no");
    }
    vector<int> v;
  };
  const auto before = region.statistics().blocks;
  EXPECT_THROW(region.container<throwing>("t"), std::runtime_error);
  EXPECT_FALSE(region.contains("t"));
  EXPECT_EQ(region.statistics().blocks, before);
}

}  // namespace
}  // namespace containers
