// The program of a synthetic task. `program GRAPH TASK` runs one task as a process, and `program GRAPH threads` runs
// all tasks as threads. In an MPI job, the rank is the number of the task.
#include <thread>

#include "boost.hpp"
#include "mpi.hpp"
#include "native.hpp"
#include "sockets.hpp"
#include "task.hpp"
#include "threads.hpp"

namespace synth {

bool in_region(Method m) { return m == Method::crossdock || m == Method::copyfrom || m == Method::hybrid; }
bool copied_in(Method m) { return m == Method::copyinto || m == Method::copy; }
bool copied_out(Method m) { return m == Method::copyfrom || m == Method::copy; }

std::unique_ptr<In> make_in(const Graph& graph, const Port& port, const Shared* shared) {
  switch (port.method) {
#ifdef SYNTH_MPI
    case Method::mpi: return std::make_unique<MpiIn>(graph, port);
    case Method::hybrid: return std::make_unique<HybridIn>(*shared, graph, port);
#endif
#ifdef SYNTH_BOOST
    case Method::boost: return std::make_unique<BoostIn>(*shared, graph, port);
#endif
    case Method::unix_socket:
    case Method::tcp: return std::make_unique<SocketIn>(*shared, graph, port);
    case Method::crossdock:
    case Method::copyinto: return std::make_unique<NativeIn>(*shared, graph, port);
    case Method::copy:
    case Method::copyfrom: return std::make_unique<CopyFrom>(std::make_unique<NativeIn>(*shared, graph, port), graph.tasks[port.from].elements);
    default: fail("this program was built without the method of port " + std::to_string(port.index));
  }
}

std::unique_ptr<Out> make_out(const Graph& graph, const Port& port, const Shared* shared, const Slots& slots) {
  switch (port.method) {
#ifdef SYNTH_MPI
    case Method::mpi: return std::make_unique<MpiOut>(port, slots);
    case Method::hybrid: return std::make_unique<HybridOut>(graph, port, slots);
#endif
    case Method::unix_socket:
    case Method::tcp: return std::make_unique<SocketOut>(*shared, graph, port, slots);
    case Method::crossdock:
    case Method::copyinto:
    case Method::copy:
    case Method::copyfrom: return std::make_unique<NativeOut>(*shared, graph, port, slots);
    default: fail("this program was built without the method of port " + std::to_string(port.index));
  }
}

/// Runs one task in this process.
void run_task(const Graph& graph, unsigned task, Group& group, const Shared* shared) {
  Ends ends;
  const auto out = graph.out_of(task);
  const std::size_t elements = graph.tasks[task].elements;
  bool region = false, staged = false, inlined = elements * 8 <= graph.inline_max, boost = false;
  for (const Port& p : out) {
    region |= in_region(p.method);
    staged |= copied_in(p.method);
    inlined &= p.method == Method::crossdock;
    boost |= p.method == Method::boost;
  }
#ifdef SYNTH_BOOST
  std::unique_ptr<BoostSegment> segment;
  if (boost) segment = std::make_unique<BoostSegment>(graph, task);
  if (boost) ends.own = segment->slots();
#endif
  if (!out.empty() && !boost) ends.own = region && !inlined ? shared->slots(elements, graph.depth) : private_slots(elements, graph.depth);
  if (staged) ends.staged = shared->slots(elements, graph.depth);
  for (const Port& p : graph.into(task)) ends.in.push_back(make_in(graph, p, shared));
  for (const Port& p : out) {
#ifdef SYNTH_BOOST
    if (p.method == Method::boost) {
      ends.out.push_back(std::make_unique<BoostOut>(*shared, graph, p, *segment));
      continue;
    }
#endif
    const bool copies = copied_in(p.method);
    (copies ? ends.out_staged : ends.out).push_back(make_out(graph, p, shared, copies ? ends.staged : ends.own));
  }
  Runner(graph, task, group, ends).run();
  // All tasks end at the same time, so that no task removes a mapping or a queue that another task still uses.
  group.barrier();
}

void run_threads(const Graph& graph) {
  std::vector<std::unique_ptr<Queue>> queues;
  for (std::size_t i = 0; i < graph.ports.size(); ++i) queues.push_back(std::make_unique<Queue>(graph.depth));
  ThreadGroup group(static_cast<std::ptrdiff_t>(graph.tasks.size()));
  std::vector<std::thread> threads;
  for (unsigned task = 0; task < graph.tasks.size(); ++task) {
    threads.emplace_back([&, task] {
      Ends ends;
      const auto out = graph.out_of(task);
      if (!out.empty()) ends.own = private_slots(graph.tasks[task].elements, graph.depth);
      for (const Port& p : graph.into(task)) ends.in.push_back(std::make_unique<ThreadIn>(*queues[p.index]));
      for (const Port& p : out) ends.out.push_back(std::make_unique<ThreadOut>(*queues[p.index], ends.own));
      Runner(graph, task, group, ends).run();
    });
  }
  for (std::thread& t : threads) t.join();
}

}  // namespace synth

int main(int argc, char** argv) {
  using namespace synth;
  if (argc < 2) fail("usage: program GRAPH [TASK | threads]");
  const Graph graph(argv[1]);
  if (argc > 2 && std::string(argv[2]) == "threads") {
    run_threads(graph);
    return 0;
  }
#ifdef SYNTH_MPI
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (static_cast<std::size_t>(ranks) != graph.tasks.size()) fail("as many ranks as tasks are needed");
  {
    MpiGroup group;
    std::unique_ptr<Shared> shared;
    for (const Port& p : graph.ports) {
      if (p.method != Method::mpi && !shared) shared = std::make_unique<Shared>(graph);
    }
    run_task(graph, static_cast<unsigned>(rank), group, shared.get());
  }
  MPI_Finalize();
#else
  if (argc < 3) fail("usage: program GRAPH TASK");
  const Shared shared(graph);
  RegionGroup group(shared, graph);
  run_task(graph, static_cast<unsigned>(std::stoul(argv[2])), group, &shared);
#endif
  return 0;
}
