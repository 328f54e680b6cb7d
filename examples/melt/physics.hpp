// The quantities that are measured for each frame: radial distribution function, temperature, mean-square displacement.
#pragma once

#include <numbers>

#include "cells.hpp"

namespace melt {

// g(r) as textbooks and LAMMPS' `compute rdf` define it: pairs found in a shell, over the pairs that an ideal gas of
// the same density would have there. `table` gets a row (r, g(r), coordination number up to r) for each bin.
inline void radial_distribution(std::span<const double> positions, const Box& box, double cutoff, std::span<double> table) {
    const std::size_t bins = table.size() / 3;
    const double width = cutoff / static_cast<double>(bins);
    const double per_width = 1.0 / width;
    std::vector<std::uint64_t> pairs(bins, 0);
    Cells(positions, box, cutoff).each_pair([&](double squared) {
        if (squared >= cutoff * cutoff) return;
        const auto bin = static_cast<std::size_t>(std::sqrt(squared) * per_width);
        if (bin < bins) ++pairs[bin];
    });

    const double atoms = static_cast<double>(positions.size() / 3);
    const double sphere = 4.0 * std::numbers::pi / (3.0 * box[0] * box[1] * box[2]);
    double coordination = 0;
    for (std::size_t bin = 0; bin < bins; ++bin) {
        const double lower = static_cast<double>(bin) * width, upper = static_cast<double>(bin + 1) * width;
        const double shell = sphere * (upper * upper * upper - lower * lower * lower);
        // Each pair counts for both of its atoms. An atom is not its own partner.
        const double partners = 2.0 * static_cast<double>(pairs[bin]) / atoms;
        const double g = partners / (shell * (atoms - 1));
        coordination += g * shell * (atoms - 1);
        table[3 * bin] = (static_cast<double>(bin) + 0.5) * width;
        table[3 * bin + 1] = g;
        table[3 * bin + 2] = coordination;
    }
}

// The kinetic temperature in Lennard-Jones units (mass and k_B are 1), without the motion of the whole system.
inline double temperature(std::span<const double> velocities) {
    double sum = 0;
    for (const double v : velocities) sum += v * v;
    return sum / static_cast<double>(velocities.size() - 3);
}

// Follows the atoms through the periodic walls: `unwrapped` moves on by the shortest way to the new positions. This is
// right as long as no atom crosses half the box between two frames.
inline void follow(std::span<double> unwrapped, std::span<const double> positions, const Box& box) {
    for (std::size_t i = 0; i < unwrapped.size(); ++i) {
        const double length = box[i % 3], d = positions[i] - unwrapped[i];
        unwrapped[i] += d - length * std::nearbyint(d / length);
    }
}

inline double mean_square_displacement(std::span<const double> origin, std::span<const double> unwrapped) {
    double sum = 0;
    for (std::size_t i = 0; i < origin.size(); ++i) sum += (unwrapped[i] - origin[i]) * (unwrapped[i] - origin[i]);
    return sum / static_cast<double>(origin.size() / 3);
}

}  // namespace melt
