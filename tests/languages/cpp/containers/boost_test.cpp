// Tests map, set, list, deque and the unordered containers: those of Boost, with crossdock's allocator and offset_ptr.
#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "fixture.hpp"

namespace containers {
namespace {

using crossdock::string;

class Map : public InRegion {};
class Others : public InRegion {};

template <class Ours, class Theirs>
void behaves_as_std(Ours& ours) {
  Theirs theirs;
  std::mt19937 random(11);
  for (int step = 0; step < 20'000; ++step) {
    const int key = static_cast<int>(random() % 500);
    if (random() % 3 == 0) {
      ASSERT_EQ(ours.erase(key), theirs.erase(key));
    } else {
      ours[key] = step;
      theirs[key] = step;
    }
  }
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [key, value] : theirs) ASSERT_EQ(ours.at(key), value);
}

TEST_F(Map, BehavesAsStd) {
  behaves_as_std<crossdock::map<int, int>, std::map<int, int>>(region.container<crossdock::map<int, int>>("m"));
  behaves_as_std<crossdock::unordered_map<int, int>, std::map<int, int>>(region.container<crossdock::unordered_map<int, int>>("u"));
}

TEST_F(Map, WithTextKeysIsAskedWithText) {
  auto& m = region.container<crossdock::map<string, int>>("m");
  auto& u = region.container<crossdock::unordered_map<string, int>>("u");
  m["one"] = u["one"] = 1;
  m[std::string("two")] = u[std::string("two")] = 2;
  m[std::string_view("two")] += 1;
  EXPECT_EQ(m.at("two"), 3);
  EXPECT_EQ(u.at("two"), 2);
  EXPECT_TRUE(m.find("one") != m.end() && u.find(std::string_view("one")) != u.end());
  EXPECT_EQ(m.count("three"), 0U);
  EXPECT_THROW((void)m.at("three"), std::out_of_range);
  EXPECT_EQ(m.emplace("three", 3).first->second, 3);
  EXPECT_EQ(m.size(), 3U);
}

TEST_F(Map, CopiesMovesAndSwaps) {
  using text_map = crossdock::map<string, crossdock::vector<int>>;
  auto& a = region.container<text_map>("a");
  auto& b = region.container<text_map>("b");
  for (int i = 0; i < 100; ++i) a["key " + std::to_string(i)].push_back(i);
  b = a;
  EXPECT_EQ(b.at("key 77")[0], 77);
  a.clear();
  a = std::move(b);
  EXPECT_EQ(a.size(), 100U);
  EXPECT_EQ(a.at("key 5").get_allocator().base(), region.base());
}

TEST_F(Others, ListAndDequeAndSets) {
  auto& l = region.container<crossdock::list<string>>("l");
  auto& d = region.container<crossdock::deque<string>>("d");
  auto& s = region.container<crossdock::set<string>>("s");
  auto& us = region.container<crossdock::unordered_set<int>>("us");
  auto& mm = region.container<crossdock::multimap<int, string>>("mm");
  for (int i = 0; i < 500; ++i) {
    const std::string text = "number " + std::to_string(i % 50);
    l.emplace_back(text);
    d.emplace_back(text);
    d.emplace_front(text);
    s.emplace(text);
    us.insert(i % 70);
    mm.emplace(i % 10, text);
  }
  EXPECT_EQ(l.size(), 500U);
  EXPECT_EQ(d.size(), 1000U);
  EXPECT_EQ(d[499], d[500]);
  EXPECT_EQ(s.size(), 50U);
  EXPECT_EQ(s.count("number 7"), 1U);
  EXPECT_EQ(us.size(), 70U);
  EXPECT_EQ(mm.count(3), 50U);
  l.sort();
  l.unique();
  EXPECT_EQ(l.size(), 50U);
  d.erase(d.begin(), d.begin() + 300);
  EXPECT_EQ(d.size(), 700U);
}

TEST(OffsetPtr, FollowsItsTargetWhereverItIsCopied) {
  struct node {
    int value;
    crossdock::offset_ptr<node> next;
  };
  std::array<node, 3> nodes = {{{1, nullptr}, {2, nullptr}, {3, nullptr}}};
  nodes[0].next = &nodes[1];
  nodes[1].next = &nodes[2];
  const auto copy = nodes[0].next;
  EXPECT_EQ(copy->value, 2);
  EXPECT_EQ(copy->next->value, 3);
  EXPECT_FALSE(copy->next->next);
  nodes[2].next = &nodes[2];
  EXPECT_EQ(nodes[2].next.get(), &nodes[2]) << "a pointer to itself is not null";
  crossdock::offset_ptr<const node> c = copy;
  EXPECT_EQ(c, nodes[0].next);
  EXPECT_EQ((copy + 1)->value, 3);
  EXPECT_EQ((copy + 1) - copy, 1);
}

TEST(OffsetPtr, IsNullInEveryCopyAndOnlyThen) {
  using pointer = crossdock::offset_ptr<int>;
  int n = 0;
  const pointer none;
  const pointer some(&n);
  std::array<pointer, 100> copies;  // each pointer has another distance to its target
  for (std::size_t i = 1; i < copies.size(); ++i) copies[i] = copies[i - 1];
  for (const pointer& p : copies) {
    EXPECT_FALSE(p);
    EXPECT_TRUE(!p);
    EXPECT_EQ(p.get(), nullptr);
    EXPECT_TRUE(p == none && none == p && p == nullptr && nullptr == p && p == copies[0]);
    EXPECT_TRUE(p != some && some != p);
    EXPECT_EQ(p - none, 0);
    EXPECT_TRUE(p <= none && p < some && some > p);
  }
  copies[7] = some;
  EXPECT_TRUE(copies[7] && copies[7] == some && copies[7] != nullptr && copies[7].get() == &n);
  copies[7] = nullptr;
  EXPECT_EQ(copies[7], none);
  copies[8] = static_cast<int*>(nullptr);
  EXPECT_EQ(copies[8], none);
  // A pointer may point to itself, one byte behind itself, or to any other place.
  std::array<crossdock::offset_ptr<char>, 2> links;
  for (int at : {0, 1, 8, -1}) {
    char* const to = reinterpret_cast<char*>(&links[0]) + at;
    links[0] = to;
    links[1] = links[0];
    EXPECT_TRUE(links[0] && links[1] && links[0].get() == to && links[1].get() == to) << at;
  }
}

TEST(OffsetPtr, ConvertsToBasesThatBeginElsewhereAndBack) {
  struct first {
    int a = 1;
  };
  struct second {
    int b = 2;
  };
  struct both : first, second {};
  both object;
  const crossdock::offset_ptr<both> p(&object);
  const crossdock::offset_ptr<second> base = p;
  EXPECT_EQ(base.get(), static_cast<second*>(&object));
  EXPECT_EQ(base->b, 2);
  EXPECT_EQ(crossdock::offset_ptr<both>(base).get(), &object);
  const crossdock::offset_ptr<void> raw = base;
  EXPECT_EQ(crossdock::offset_ptr<second>(raw), base);
  const crossdock::offset_ptr<both> none;
  const crossdock::offset_ptr<second> none_too = none;
  EXPECT_FALSE(none_too);
  EXPECT_EQ(none_too.get(), nullptr);
  EXPECT_EQ(crossdock::offset_ptr<both>(none_too).get(), nullptr);
  EXPECT_EQ(crossdock::offset_ptr<void>(none_too), nullptr);
}

TEST(OffsetPtr, MeansTheSameWhereverTheMemoryIsMapped) {
  struct block {
    crossdock::offset_ptr<int> to;
    crossdock::offset_ptr<int> none;
    crossdock::offset_ptr<int> copied;
    int n;
  };
  std::array<block, 2> there;
  there[0].n = 7;
  there[0].to = &there[0].n;
  there[0].copied = there[1].none;  // a copy from a distant place
  std::vector<std::byte> moved(sizeof(block));
  std::memcpy(moved.data(), static_cast<const void*>(&there[0]), sizeof(block));  // as if mapped at another address
  const auto& here = *reinterpret_cast<const block*>(moved.data());
  EXPECT_EQ(here.to.get(), &here.n);
  EXPECT_TRUE(!here.none && !here.copied && here.none == here.copied && here.copied == nullptr);
  EXPECT_EQ(crossdock::offset_ptr<int>(here.copied).get(), nullptr);
}

}  // namespace
}  // namespace containers
