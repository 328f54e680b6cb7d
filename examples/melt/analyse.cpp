// Reads frames of atoms at the place where the simulation wrote them, analyses them, and hands the results on. No byte
// of a frame or of a result is copied. What the task remembers is also in crossdock containers, so that other tasks can
// read it.
#include <crossdock/crossdock.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "physics.hpp"

namespace {

using crossdock::ndarray;
using Series = crossdock::vector<double>;

constexpr double cutoff = 2.5;
constexpr std::size_t bins = 100;
constexpr std::uint32_t results_under_way = 8;

/// A summary that travels inside the message, beside the handle of the g(r) table.
struct Summary {
    double temperature;
    double displacement;
};

/// What the analysis remembers from one frame to the next.
struct Memory {
    explicit Memory(crossdock::region& region)
        : origin(region.container<Series>("origin")),
          unwrapped(region.container<Series>("unwrapped")),
          temperature(region.container<Series>("temperature")),
          displacement(region.container<Series>("displacement")) {}

    Series& origin;        // the positions of the atoms in the first frame
    Series& unwrapped;     // the positions in the last frame, without the jumps at the periodic walls
    Series& temperature;   // a value for each frame
    Series& displacement;
};

/// A set of tables that are used in turn. A table is filled again only after its reader has given it back.
class Tables {
public:
    explicit Tables(crossdock::region& region) {
        for (std::uint32_t i = 0; i < results_under_way; ++i) {
            unused_.push_back(&region.container<ndarray<double>>("table." + std::to_string(i)));
            unused_.back()->reshape({bins, 3});
        }
    }

    ndarray<double>& free_one(crossdock::port& port) {
        if (unused_.empty()) return *port.reclaim<ndarray<double>>();
        auto* table = unused_.back();
        unused_.pop_back();
        return *table;
    }

private:
    std::vector<ndarray<double>*> unused_;
};

Summary measure(const ndarray<double>& frame, const melt::Box& box, Memory& memory, ndarray<double>& table) {
    if (frame.rank() != 3 || frame.extent(0) != 2 || frame.extent(2) != 3) {
        throw std::invalid_argument("a frame has the shape (2, atoms, 3): positions and velocities");
    }
    const std::span<const double> all = frame.span();
    const auto positions = all.first(all.size() / 2), velocities = all.last(all.size() / 2);

    melt::radial_distribution(positions, box, cutoff, table.span());
    if (memory.origin.empty()) {
        memory.origin.assign(positions.begin(), positions.end());
        memory.unwrapped.assign(positions.begin(), positions.end());
    }
    melt::follow(memory.unwrapped.span(), positions, box);
    const Summary summary{melt::temperature(velocities),
                          melt::mean_square_displacement(memory.origin.span(), memory.unwrapped.span())};
    memory.temperature.push_back(summary.temperature);
    memory.displacement.push_back(summary.displacement);
    return summary;
}

std::size_t analyse() {
    crossdock::region region(crossdock::mode::open_or_create, "results", 32u << 20);
    auto positions = region.port("positions", crossdock::consumer, {.capacity = 4});
    auto results = region.port("results", crossdock::producer, {.capacity = results_under_way});
    Memory memory(region);
    Tables tables(region);

    for (std::size_t frames = 0;; ++frames) {
        auto received = positions.try_receive<const ndarray<double>>(crossdock::default_wait);
        if (received.status() == crossdock::status::closed) {
            // After the last table, the analysis sends the values that it has kept. The reader compares them with the
            // values that arrived with the tables.
            results.send(memory.temperature);
            results.send(memory.displacement);
            results.close();
            return frames;
        }
        auto& frame = received.value();
        auto& table = tables.free_one(results);
        const Summary summary = measure(*frame, frame.value<melt::Box>(), memory, table);
        results.send_with(table, summary, frame.tag());
    }
}

}  // namespace

int main() try {
    std::printf("C++ %ld, compiled against crossdock %d.%d\n", __cplusplus, CROSSDOCK_VERSION_MAJOR, CROSSDOCK_VERSION_MINOR);
    std::fflush(stdout);
    const std::size_t frames = analyse();
    std::printf("%zu frames analysed\n", frames);
} catch (const std::exception& e) {
    std::fprintf(stderr, "analyse: %s\n", e.what());
    return 1;
}
