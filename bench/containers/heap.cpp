// Measures row P6 of docs/benchmarks.md: allocating and freeing in a region, in one process and in two processes at the
// same time, compared with Boost.Interprocess and malloc.
#include <crossdock/crossdock.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/interprocess/managed_shared_memory.hpp>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "measure.hpp"

namespace {

namespace ipc = boost::interprocess;

int rounds = 9;
constexpr std::size_t live = 1000;
constexpr std::size_t operations = 200'000;

/// Two patterns. Pairs: 64 bytes are allocated and immediately freed. Mix: one of a thousand live blocks, chosen at
/// random, is replaced by a block of 16 to 2048 bytes.
template <class Allocate, class Free>
double pairs(Allocate allocate, Free release, std::size_t count) {
  const auto begin = bench::clock::now();
  for (std::size_t i = 0; i < count / 2; ++i) {
    void* p = allocate(64);
    bench::keep(p);
    release(p);
  }
  return bench::ns_since(begin) / static_cast<double>(count);
}
template <class Allocate, class Free>
double mix(Allocate allocate, Free release, std::size_t count) {
  std::mt19937 random(3);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> plan(count / 2);
  for (auto& [slot, size] : plan) slot = random() % live, size = 16U << random() % 8;
  std::array<void*, live> blocks{};
  for (auto& p : blocks) p = allocate(64);
  const auto begin = bench::clock::now();
  for (const auto& [slot, size] : plan) {
    release(blocks[slot]);
    blocks[slot] = allocate(size);
    static_cast<char*>(blocks[slot])[0] = 1;
  }
  const double ns = bench::ns_since(begin) / static_cast<double>(count);
  for (void* p : blocks) release(p);
  return ns;
}

/// Runs the work in this process; with `two`, also in another process at the same time. Returns nanoseconds per
/// operation in this process.
template <class Work>
double beside(bool two, Work work) {
  if (!two) return work();
  int ready[2];
  if (::pipe(ready) != 0) std::abort();
  const pid_t other = ::fork();
  if (other == 0) {
    ::execl("/proc/self/exe", "heap", "--other", std::to_string(ready[1]).c_str(), std::getenv("BENCH_WHO"), std::getenv("BENCH_NAME"), std::getenv("BENCH_KIND"), nullptr);
    ::_exit(127);
  }
  char byte = 0;
  ::close(ready[1]);
  if (::read(ready[0], &byte, 1) != 1) std::abort();
  ::close(ready[0]);
  const double ns = work();
  ::kill(other, SIGTERM);
  ::waitpid(other, nullptr, 0);
  return ns;
}

struct ours {
  explicit ours(const std::string& name) : r(crossdock::open_or_create, name, 512 << 20) {}
  void* allocate(std::size_t n) {
    void* p = nullptr;
    if (crossdock_allocate_at(r.base(), n, 8, &p) != CROSSDOCK_OK) std::abort();
    return p;
  }
  void release(void* p) { (void)crossdock_deallocate_at(r.base(), p); }
  static void remove(const std::string& name) { crossdock::remove_region(name); }
  crossdock::region r;
};
struct theirs {
  explicit theirs(const std::string& name) : m(ipc::open_or_create, name.c_str(), 512 << 20) {}
  void* allocate(std::size_t n) { return m.allocate(n); }
  void release(void* p) { m.deallocate(p); }
  static void remove(const std::string& name) { ipc::shared_memory_object::remove(name.c_str()); }
  ipc::managed_shared_memory m;
};
struct plain {
  explicit plain(const std::string&) {}
  void* allocate(std::size_t n) { return std::malloc(n); }
  void release(void* p) { std::free(p); }
  static void remove(const std::string&) {}
};

template <class Heap>
double work(Heap& heap, const std::string& kind, std::size_t count) {
  const auto allocate = [&](std::size_t n) { return heap.allocate(n); };
  const auto release = [&](void* p) { heap.release(p); };
  return kind == "pairs" ? pairs(allocate, release, count) : mix(allocate, release, count);
}

template <class Heap>
void measure(const std::string& who) {
  const std::string name = "bench-heap-" + std::to_string(::getpid()) + "-" + std::to_string(who.size());
  ::setenv("BENCH_WHO", who.c_str(), 1);
  ::setenv("BENCH_NAME", name.c_str(), 1);
  {
    Heap heap(name);
    for (bool two : {false, true}) {
      for (const std::string kind : {"pairs", "mix"}) {
        ::setenv("BENCH_KIND", kind.c_str(), 1);
        std::vector<double> all;
        work(heap, kind, operations / 10);
        for (int i = 0; i < rounds; ++i) all.push_back(beside(two, [&] { return work(heap, kind, operations); }));
        bench::print("P6", kind + (two ? ", two processes" : ", one process"), who, all);
      }
    }
  }
  Heap::remove(name);
}

// This flag, which SIGTERM sets, tells the second process to end. That process must not be killed, because it could hold
// Boost.Interprocess's lock, and the benchmark would then hang.
volatile std::sig_atomic_t enough = 0;

template <class Heap>
[[noreturn]] void other(int ready, const std::string& name, const std::string& kind) {
  std::signal(SIGTERM, [](int) { enough = 1; });
  Heap heap(name);
  work(heap, kind, operations / 10);
  if (::write(ready, "x", 1) != 1) std::abort();
  while (!enough) work(heap, kind, operations / 20);
  std::exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 6 && std::strcmp(argv[1], "--other") == 0) {
    const std::string who = argv[3];
    const int ready = std::atoi(argv[2]);
    if (who == "crossdock") other<ours>(ready, argv[4], argv[5]);
    if (who == "Boost.Interprocess") other<theirs>(ready, argv[4], argv[5]);
    other<plain>(ready, argv[4], argv[5]);
  }
  if (argc > 1) rounds = std::atoi(argv[1]);
  measure<ours>("crossdock");
  measure<plain>("malloc");
  measure<theirs>("Boost.Interprocess");
}
