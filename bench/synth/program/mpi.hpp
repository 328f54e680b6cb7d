// The methods in which the tasks are ranks of an MPI job. `mpi`: the data goes in non-blocking messages, and the
// number of messages in flight is the depth of the port. Receives are posted ahead, so that a copy can proceed while
// the task works. `hybrid`: the data lies in the region and its handle goes in a message, as in the Dhmem paper.
#pragma once

#ifdef SYNTH_MPI
#include <mpi.h>

#include "shared.hpp"

namespace synth {

class MpiGroup final : public Group {
 public:
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  std::uint64_t agree(unsigned, std::uint64_t value) override {
    MPI_Bcast(&value, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    return value;
  }
};

class MpiOut final : public Out {
 public:
  MpiOut(const Port& port, const Slots& slots) : port_(port), slots_(slots), requests_(slots.place.size(), MPI_REQUEST_NULL) {}
  void ready(unsigned slot) override { MPI_Wait(&requests_[slot], MPI_STATUS_IGNORE); }
  void send(unsigned slot) override {
    MPI_Isend(slots_.place[slot], static_cast<int>(slots_.elements), MPI_UINT64_T, static_cast<int>(port_.to), static_cast<int>(port_.index), MPI_COMM_WORLD,
              &requests_[slot]);
  }
  void finish() override { MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE); }

 private:
  Port port_;
  const Slots& slots_;
  std::vector<MPI_Request> requests_;
};

class MpiIn final : public In {
 public:
  MpiIn(const Graph& graph, const Port& port) : port_(port), buffers_(private_slots(graph.tasks[port.from].elements, graph.depth)), requests_(graph.depth) {
    for (unsigned i = 0; i < graph.depth; ++i) post(i);
  }
  const std::uint64_t* receive() override {
    MPI_Wait(&requests_[next_], MPI_STATUS_IGNORE);
    return buffers_.place[next_];
  }
  void release() override {
    post(next_);
    next_ = (next_ + 1) % static_cast<unsigned>(requests_.size());
  }
  void finish() override {
    for (MPI_Request& r : requests_) {
      MPI_Cancel(&r);
      MPI_Wait(&r, MPI_STATUS_IGNORE);
    }
  }

 private:
  void post(unsigned i) {
    MPI_Irecv(buffers_.place[i], static_cast<int>(buffers_.elements), MPI_UINT64_T, static_cast<int>(port_.from), static_cast<int>(port_.index), MPI_COMM_WORLD,
              &requests_[i]);
  }
  Port port_;
  Slots buffers_;
  std::vector<MPI_Request> requests_;
  unsigned next_ = 0;
};

/// Handles go to the consumer, and empty messages come back as credits. There are as many credits as slots.
class HybridOut final : public Out {
 public:
  HybridOut(const Graph& graph, const Port& port, const Slots& slots) : port_(port), slots_(slots), back_(static_cast<int>(graph.ports.size() + port.index)) {}
  void ready(unsigned) override {
    if (sent_ < slots_.place.size()) return;
    MPI_Recv(nullptr, 0, MPI_BYTE, static_cast<int>(port_.to), back_, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    ++returned_;
  }
  void send(unsigned slot) override {
    crossdock_handle handle = slots_.handle[slot];
    MPI_Send(&handle, 2, MPI_UINT64_T, static_cast<int>(port_.to), static_cast<int>(port_.index), MPI_COMM_WORLD);
    ++sent_;
  }
  void finish() override {
    for (; returned_ < sent_; ++returned_) MPI_Recv(nullptr, 0, MPI_BYTE, static_cast<int>(port_.to), back_, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }

 private:
  Port port_;
  const Slots& slots_;
  int back_;
  std::uint64_t sent_ = 0, returned_ = 0;
};

class HybridIn final : public In {
 public:
  HybridIn(const Shared& shared, const Graph& graph, const Port& port)
      : shared_(shared), port_(port), elements_(graph.tasks[port.from].elements), back_(static_cast<int>(graph.ports.size() + port.index)) {}
  const std::uint64_t* receive() override {
    crossdock_handle handle{};
    MPI_Recv(&handle, 2, MPI_UINT64_T, static_cast<int>(port_.from), static_cast<int>(port_.index), MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return shared_.load(handle, elements_);
  }
  void release() override { MPI_Send(nullptr, 0, MPI_BYTE, static_cast<int>(port_.from), back_, MPI_COMM_WORLD); }

 private:
  const Shared& shared_;
  Port port_;
  std::size_t elements_;
  int back_;
};

}  // namespace synth
#endif
