// Runs the patterns of allocation (mixes) of src/mixes.rs on Boost.Interprocess's managed_shared_memory. Prints the
// mix, the number of processes, and nanoseconds per call.
#include <boost/interprocess/managed_shared_memory.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace bip = boost::interprocess;
using Clock = std::chrono::steady_clock;

struct Random {
    std::uint64_t state;
    std::uint64_t below(std::uint64_t n)
    {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return (state >> 11) % n;
    }
};

static void pin(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor % static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), &set);
    sched_setaffinity(0, sizeof set, &set);
}

static double per_call(Clock::time_point start, std::uint64_t calls)
{
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / static_cast<double>(calls);
}

using Heap = bip::managed_shared_memory;

static char *take(Heap &heap, std::size_t size)
{
    char *block = static_cast<char *>(heap.allocate(size));
    *block = 1;
    return block;
}

static double at_once(Heap &heap, Random &, std::uint64_t steps)
{
    auto start = Clock::now();
    for (std::uint64_t i = 0; i < steps; ++i)
        heap.deallocate(take(heap, 64));
    return per_call(start, 2 * steps);
}

static double random_mix(Heap &heap, Random &random, std::uint64_t steps)
{
    std::vector<char *> live;
    for (int i = 0; i < 1000; ++i)
        live.push_back(take(heap, 16 + random.below(1000)));
    auto start = Clock::now();
    for (std::uint64_t i = 0; i < steps; ++i) {
        auto at = random.below(1000);
        heap.deallocate(live[at]);
        live[at] = take(heap, 16 + random.below(1000));
    }
    double time = per_call(start, 2 * steps);
    for (char *block : live)
        heap.deallocate(block);
    return time;
}

static double batches(Heap &heap, Random &random, std::uint64_t steps)
{
    std::vector<char *> blocks;
    auto start = Clock::now();
    for (std::uint64_t i = 0; i < steps / 1000; ++i) {
        for (int j = 0; j < 1000; ++j)
            blocks.push_back(take(heap, 16 + random.below(128)));
        for (char *block : blocks)
            heap.deallocate(block);
        blocks.clear();
    }
    return per_call(start, 2 * (steps / 1000 * 1000));
}

using Mix = double (*)(Heap &, Random &, std::uint64_t);

static double median(Heap &heap, Mix mix, std::uint64_t steps)
{
    pin(0);
    std::vector<double> times;
    for (std::uint64_t round = 1; round <= 31; ++round) {
        Random random{round};
        times.push_back(mix(heap, random, steps));
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

struct Words {
    std::atomic<std::uint64_t> met, stop, put, got;
    std::atomic<std::ptrdiff_t> ring[4096];
};

static void meet(Words &words)
{
    words.met.fetch_add(1);
    while (words.met.load() < 2) {}
}

static Words &fresh_words()
{
    void *memory = mmap(nullptr, sizeof(Words), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return *new (memory) Words{};
}

static double two_processes(const std::string &name, Mix mix, std::uint64_t steps)
{
    Words &words = fresh_words();
    pid_t other = fork();
    Heap heap(bip::open_only, name.c_str());
    if (other == 0) {
        pin(1);
        meet(words);
        Random random{77};
        while (words.stop.load() == 0)
            mix(heap, random, steps / 10);
        _exit(0);
    }
    meet(words);
    double time = median(heap, mix, steps);
    words.stop = 1;
    waitpid(other, nullptr, 0);
    return time;
}

// Spins until the condition holds. It yields in between, in case the other process has no CPU.
template <typename Done> static void wait_until(Done done)
{
    for (;;) {
        for (int i = 0; i < 200; ++i)
            if (done())
                return;
        sched_yield();
    }
}

static double hand_over(const std::string &name, std::uint64_t steps)
{
    Words &words = fresh_words();
    pid_t other = fork();
    Heap heap(bip::open_only, name.c_str());
    if (other == 0) {
        pin(1);
        meet(words);
        for (std::uint64_t i = 0; i < steps; ++i) {
            wait_until([&] { return words.put.load(std::memory_order_acquire) > i; });
            heap.deallocate(heap.get_address_from_handle(words.ring[i % 4096].load(std::memory_order_relaxed)));
            words.got.store(i + 1, std::memory_order_release);
        }
        _exit(0);
    }
    pin(0);
    meet(words);
    Random random{5};
    auto start = Clock::now();
    for (std::uint64_t i = 0; i < steps; ++i) {
        wait_until([&] { return words.got.load(std::memory_order_acquire) + 4096 > i; });
        words.ring[i % 4096].store(heap.get_handle_from_address(take(heap, 16 + random.below(1000))),
                                   std::memory_order_relaxed);
        words.put.store(i + 1, std::memory_order_release);
    }
    double time = per_call(start, 2 * steps);
    waitpid(other, nullptr, 0);
    return time;
}

int main(int argc, char **argv)
{
    std::uint64_t steps = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 50000;
    std::string name = "crossdock-bench-" + std::to_string(getpid());
    const std::pair<const char *, Mix> mixes[] = {
        {"same size, at once", at_once}, {"random, 1000 live", random_mix}, {"batches", batches}};
    {
        Heap heap(bip::create_only, name.c_str(), 256 << 20);
        for (auto &[text, mix] : mixes) {
            std::printf("%s;1;%.2f\n", text, median(heap, mix, steps));
            std::printf("%s;2;%.2f\n", text, two_processes(name, mix, steps));
            std::fflush(stdout);
        }
        std::printf("hand-over;2;%.2f\n", hand_over(name, steps * 10));
    }
    bip::shared_memory_object::remove(name.c_str());
}
