// The graph in the form that `synth` wrote. `synth` has checked the graph, so an error here is a bug and ends the
// program.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace synth {

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "synth: %s\n", what.c_str());
  std::_Exit(1);
}

enum class Method { crossdock, mpi, hybrid, copy, copyinto, copyfrom, threads, unix_socket, tcp, boost };

inline Method method_of(const std::string& word) {
  static const char* const words[] = {"crossdock", "mpi", "hybrid", "copy", "copyinto", "copyfrom", "threads", "unix", "tcp", "boost"};
  for (int i = 0; i < 10; ++i) {
    if (word == words[i]) return static_cast<Method>(i);
  }
  fail("unknown method " + word);
}

struct Task {
  std::string name;
  std::size_t elements;  // the number of elements that the task sends each time
  std::int64_t period_ns;
};

struct Port {
  unsigned from, to;
  Method method;
  unsigned index;
};

struct Graph {
  std::uint64_t iterations = 0, warmup = 0, trials = 0, trial_ns = 0, region = 0, inline_max = 0;
  unsigned depth = 1;
  int waiting = 0;
  bool latency = false;
  std::string run;  // a part of the names of all objects that belong to this run
  std::vector<Task> tasks;
  std::vector<Port> ports;

  explicit Graph(const char* file) {
    std::ifstream in(file);
    std::string line;
    while (std::getline(in, line)) {
      std::istringstream words(line);
      std::string kind;
      words >> kind;
      if (kind == "workflow") {
        words >> iterations >> warmup >> trials >> trial_ns >> depth >> region >> inline_max >> waiting >> latency >> run;
      } else if (kind == "task") {
        Task t;
        words >> t.name >> t.elements >> t.period_ns;
        tasks.push_back(t);
      } else if (kind == "port") {
        Port p;
        std::string method;
        words >> p.from >> p.to >> method;
        p.method = method_of(method);
        p.index = static_cast<unsigned>(ports.size());
        ports.push_back(p);
      }
      if (!words) fail(std::string(file) + ": cannot read: " + line);
    }
    if (tasks.empty() || depth == 0) fail(std::string(file) + ": no graph");
  }

  std::vector<Port> into(unsigned task) const {
    std::vector<Port> found;
    for (const Port& p : ports) {
      if (p.to == task) found.push_back(p);
    }
    return found;
  }
  std::vector<Port> out_of(unsigned task) const {
    std::vector<Port> found;
    for (const Port& p : ports) {
      if (p.from == task) found.push_back(p);
    }
    return found;
  }
  bool has(Method a) const {
    for (const Port& p : ports) {
      if (p.method == a) return true;
    }
    return false;
  }
};

}  // namespace synth
