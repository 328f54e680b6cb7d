// Tests that ports over MPI keep the promises of ports: order, credits, deadlines and the end of the stream.
#include <crossdock/mpi.hpp>

#include <cstdio>
#include <thread>

using namespace std::chrono_literals;
namespace cd = crossdock;

static int failed, rank;

static void check(bool so, const char* claim) {
  std::printf("%s %s\n", so ? "ok" : "FAILED", claim);
  std::fflush(stdout);
  failed += !so;
}
template <class F>
static cd::status status_of(F f) {
  try {
    f();
    return cd::status::ok;
  } catch (const cd::error& e) {
    return e.status();
  }
}
static void barrier() { MPI_Barrier(MPI_COMM_WORLD); }

static void order(cd::region& r) {
  if (rank == 0) {
    auto port = r.port("order", cd::producer, cd::mpi, {.capacity = 4});
    auto& v = r.container<cd::vector<double>>("v");
    v.resize(1000, 1.0);
    for (std::uint64_t i = 0; i < 1000; i++) port.send(v, i);
    check(port.statistics().messages == 1000 && port.statistics().bytes_handed_over == 8'000'000, "M10 the producer counts what it handed over");
    check(port.statistics().bytes_copied == 0, "M11 nothing is copied");
    barrier();
  } else {
    auto port = r.port("order", cd::consumer, cd::mpi, {.capacity = 4});
    bool in_order = true;
    for (std::uint64_t i = 0; i < 1000; i++) {
      auto m = port.receive<cd::vector<double>>();
      in_order = in_order && m.tag() == i && m->size() == 1000;
    }
    check(in_order, "M12 1000 messages arrive in order through 4 places");
    barrier();
  }
}

static void credits(cd::region& r) {
  if (rank == 0) {
    auto port = r.port("credits", cd::producer, cd::mpi, {.capacity = 2});
    int &a = r.simple<int>("a"), &b = r.simple<int>("b"), &c = r.simple<int>("c");
    port.send(a);
    port.send(b);
    check(!port.try_send(c) && port.try_send(c).status() == cd::status::not_yet, "M13 a full port is not yet");
    check(status_of([&] { port.send(c, 200ms); }) == cd::status::timed_out, "M14 a send to a full port ends by its deadline");
    barrier();  // 1: the consumer releases the first message
    barrier();  // 2: the consumer has released it
    check(port.reclaim<int>() == &a, "M15 the credit is the released object");
    port.send(c);
    barrier();
  } else {
    auto port = r.port("credits", cd::consumer, cd::mpi, {.capacity = 2});
    barrier();
    { auto m = port.receive<int>(); }
    barrier();
    barrier();
    int got = 0;
    while (port.try_receive<int>(1s)) got++;
    check(got == 2, "M16 the others arrive too");
  }
  barrier();
}

static void the_end(cd::region& r) {
  if (rank == 0) {
    {
      auto port = r.port("end", cd::producer, cd::mpi);
      for (int i = 0; i < 3; i++) port.send(r.simple<int>("a"));
    }
    barrier();
    auto port = r.port("other-end", cd::producer, cd::mpi, {.capacity = 1});
    port.send(r.simple<int>("a"));
    barrier();
    check(status_of([&] { port.send(r.simple<int>("a"), 5s); }) == cd::status::closed, "M17 a producer learns that its consumer left");
  } else {
    auto port = r.port("end", cd::consumer, cd::mpi);
    barrier();
    for (int i = 0; i < 3; i++) port.recv<int>(5s);
    check(status_of([&] { port.recv<int>(5s); }) == cd::status::closed, "M18 what was sent before the producer left, then closed");
    {
      auto other = r.port("other-end", cd::consumer, cd::mpi, {.capacity = 1});
      other.recv<int>(5s);
    }
    barrier();
  }
  barrier();
}

static void errors(cd::region& r) {
  if (rank == 0) {
    auto port = r.port("errors", cd::producer, cd::mpi);
    check(status_of([&] { (void)port.receive<int>(); }) == cd::status::invalid, "M19 a producer does not receive");
    check(status_of([&] { port.send(r.simple<int>("a"), 100ms); }) == cd::status::timed_out, "M20 with no consumer a send ends by its deadline");
    check(status_of([&] { r.port("errors2", cd::producer, cd::mpi, {.pattern = cd::pattern::fan_out}); }) == cd::status::invalid, "M21 other patterns are refused");
    barrier();
    barrier();
  } else {
    barrier();
    check(status_of([&] { r.port("errors", cd::producer, cd::mpi); }) == cd::status::busy, "M22 a second producer is busy");
    check(status_of([&] { r.port("errors", cd::consumer, cd::mpi, {.capacity = 2}); }) == cd::status::invalid, "M23 options must agree");
    barrier();
  }
  barrier();
}

static void tags(cd::region& r) {
  auto kept = r.port("kept", rank == 0 ? cd::producer : cd::consumer, cd::mpi, {.capacity = 2});
  barrier();
  if (rank == 0) {
    for (int i = 0; i < 2047; i++) r.port("again", cd::producer, cd::mpi, {.capacity = 2});
    auto again = r.port("again", cd::producer, cd::mpi, {.capacity = 2});
    barrier();
    kept.send(r.simple<int>("a"), 1);
    again.send(r.simple<int>("a"), 2);
    barrier();
  } else {
    barrier();
    auto again = r.port("again", cd::consumer, cd::mpi, {.capacity = 2});
    const auto second = again.receive<int>(5s).tag();
    const auto first = kept.receive<int>(5s).tag();
    check(first == 1 && second == 2, "M24 two open ports never have the same tags");
    barrier();
  }
  barrier();
}

static void threads(cd::region& r) {
  if (rank == 0) {
    auto port = r.port("threads", cd::producer, cd::mpi, {.capacity = 1});
    port.send(r.simple<int>("a"), 1);
    check(status_of([&] { port.send(r.simple<int>("a"), 2, 5s); }) == cd::status::ok, "M25 a message is released while another thread waits for the next");
    barrier();
  } else {
    auto port = r.port("threads", cd::consumer, cd::mpi, {.capacity = 1});
    auto first = port.receive<int>(5s);
    std::thread releases([&] {
      std::this_thread::sleep_for(200ms);
      std::move(first).release();
    });
    check(status_of([&] { port.recv<int>(8s); }) == cd::status::ok, "M26 the waiting thread gets the next message");
    releases.join();
    barrier();
  }
  barrier();
}

int main(int count, char** arguments) {
  int threaded = 0;
  MPI_Init_thread(&count, &arguments, MPI_THREAD_MULTIPLE, &threaded);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const std::string name = std::string(arguments[1]) + "/ports";
  try {
    cd::region r(name);
    barrier();
    order(r);
    credits(r);
    the_end(r);
    errors(r);
    tags(r);
    if (threaded == MPI_THREAD_MULTIPLE) threads(r);
    if (rank == 0) cd::remove_region(name);
  } catch (const cd::error& e) {
    std::printf("FAILED rank %d: %s\n", rank, e.what());
    std::fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return failed != 0;
}
