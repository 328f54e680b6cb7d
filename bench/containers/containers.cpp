// Measures row P7 of docs/benchmarks.md: iterating, inserting and looking up, in containers in shared memory and in std
// containers. Runs of both alternate, so that other programs slow both down alike.
#include <crossdock/crossdock.hpp>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <unordered_map>
#include <vector>

#include "measure.hpp"

namespace {

int rounds = 15;
constexpr std::size_t elements = 1'000'000;
constexpr std::size_t keys = 100'000;

/// Runs both pieces of code in turn. Each of them returns nanoseconds per operation.
template <class Ours, class Theirs>
void compare(const std::string& what, Ours ours, Theirs theirs) {
  std::vector<double> a;
  std::vector<double> b;
  for (int i = 0; i < rounds; ++i) {
    a.push_back(ours());
    b.push_back(theirs());
  }
  bench::print("P7", what, "crossdock", a);
  bench::print("P7", what, "std", b);
}

template <class F>
double per(std::size_t operations, F f) {
  const auto begin = bench::clock::now();
  f();
  return bench::ns_since(begin) / static_cast<double>(operations);
}

template <class V>
double iterate(V& v) {
  return per(v.size(), [&] {
    double sum = 0;
    for (double x : v) sum += x;
    bench::keep(sum);
  });
}
template <class V>
double index(V& v) {
  return per(v.size(), [&] {
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = v[i] * 0.5 + 1;
    bench::keep(v.data());
  });
}
template <class V>
double push_back(V& v) {
  return per(elements, [&] {
    for (std::size_t i = 0; i < elements; ++i) v.push_back(static_cast<double>(i));
    bench::keep(v.data());
  });
}

const std::vector<int>& shuffled() {
  static const std::vector<int> all = [] {
    std::vector<int> v(keys);
    std::iota(v.begin(), v.end(), 0);
    std::shuffle(v.begin(), v.end(), std::mt19937(5));
    return v;
  }();
  return all;
}

template <class M>
double insert(M& m) {
  m.clear();
  return per(keys, [&] {
    for (int k : shuffled()) m.emplace(k, k);
  });
}
template <class M>
double walk(M& m) {
  return per(m.size(), [&] {
    long sum = 0;
    for (const auto& entry : m) sum += entry.second;
    bench::keep(sum);
  });
}
template <class M>
double look_up(M& m) {
  return per(keys, [&] {
    long sum = 0;
    for (int k : shuffled()) sum += m.find(keys - 1 - k)->second;
    bench::keep(sum);
  });
}
template <class M>
double erase(M& m) {
  return per(keys, [&] {
    for (int k : shuffled()) m.erase(k);
  });
}

template <class Ours, class Theirs>
void maps(const std::string& name, Ours& ours, Theirs& theirs) {
  compare(name + ": insert", [&] { return insert(ours); }, [&] { return insert(theirs); });
  compare(name + ": iterate", [&] { return walk(ours); }, [&] { return walk(theirs); });
  compare(name + ": look up", [&] { return look_up(ours); }, [&] { return look_up(theirs); });
  compare(
      name + ": erase all", [&] { return insert(ours), erase(ours); }, [&] { return insert(theirs), erase(theirs); });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) rounds = std::atoi(argv[1]);
  const std::string name = "bench-containers-" + std::to_string(::getpid());
  {
    crossdock::region r(crossdock::create_only, name, std::uint64_t{1} << 30);
    auto& v = r.container<crossdock::vector<double>>("v");
    v.resize(elements, 1.5);
    std::vector<double> w(elements, 1.5);
    compare("vector: iterate", [&] { return iterate(v); }, [&] { return iterate(w); });
    compare("vector: v[i] = f(v[i])", [&] { return index(v); }, [&] { return index(w); });
    compare(
        "vector: push_back, growing",
        [&] {
          v.clear();
          v.shrink_to_fit();
          return push_back(v);
        },
        [&] {
          w = std::vector<double>();
          return push_back(w);
        });
    compare(
        "vector: push_back, reserved",
        [&] {
          v.clear();
          return push_back(v);
        },
        [&] {
          w.clear();
          return push_back(w);
        });
    std::map<int, int> std_map;
    std::unordered_map<int, int> std_unordered;
    maps("map", r.container<crossdock::map<int, int>>("m"), std_map);
    maps("unordered_map", r.container<crossdock::unordered_map<int, int>>("u"), std_unordered);
  }
  crossdock::remove_region(name);
}
