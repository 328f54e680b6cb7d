// Finds the pairs of atoms closer than a cutoff in a periodic box. The box is divided into cells at least as wide as
// the cutoff, so an atom's partners lie in its own cell and the 26 cells around it. Positions are read where they lie;
// the lists hold only indices.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

namespace melt {

using Box = std::array<double, 3>;

// The shortest way from one atom to another across the periodic walls. Both lie in the box or a little outside of
// it (a simulation puts atoms back only every few steps), so one correction is enough.
inline double shortest(double d, double length) {
    if (d > 0.5 * length) return d - length;
    if (d < -0.5 * length) return d + length;
    return d;
}

class Cells {
public:
    // `positions`: x, y, z of each atom, one after the other.
    Cells(std::span<const double> positions, const Box& box, double cutoff) : positions_(positions), box_(box) {
        for (int axis = 0; axis < 3; ++axis) {
            count_[axis] = static_cast<int>(box[axis] / cutoff);
            if (count_[axis] < 3) throw std::invalid_argument("the box is narrower than three cutoffs");
        }
        sort_atoms();
    }

    // Calls visit(squared distance) once for each pair of atoms in the same cell or in neighbouring cells. Some pairs
    // are farther apart than the cutoff, so the caller compares the distance with the cutoff.
    template <typename Visit>
    void each_pair(Visit visit) const {
        for (int z = 0; z < count_[2]; ++z)
            for (int y = 0; y < count_[1]; ++y)
                for (int x = 0; x < count_[0]; ++x) pairs_of_cell(x, y, z, visit);
    }

private:
    // Counting sort: atoms_ holds the atoms of cell c at first_[c] .. first_[c + 1].
    void sort_atoms() {
        const std::size_t atoms = positions_.size() / 3;
        const std::size_t cells = static_cast<std::size_t>(count_[0]) * count_[1] * count_[2];
        std::vector<std::uint32_t> cell_of(atoms);
        first_.assign(cells + 1, 0);
        for (std::size_t i = 0; i < atoms; ++i) {
            cell_of[i] = cell(place(i, 0), place(i, 1), place(i, 2));
            ++first_[cell_of[i] + 1];
        }
        for (std::size_t c = 0; c < cells; ++c) first_[c + 1] += first_[c];
        atoms_.resize(atoms);
        std::vector<std::uint32_t> next(first_.begin(), first_.end() - 1);
        for (std::size_t i = 0; i < atoms; ++i) atoms_[next[cell_of[i]]++] = static_cast<std::uint32_t>(i);
    }

    int place(std::size_t atom, int axis) const {
        const double x = positions_[3 * atom + axis] / box_[axis];
        if (!std::isfinite(x)) throw std::invalid_argument("an atom's position is not a number");
        return std::clamp(static_cast<int>((x - std::floor(x)) * count_[axis]), 0, count_[axis] - 1);
    }

    std::uint32_t cell(int x, int y, int z) const {
        return static_cast<std::uint32_t>((z * count_[1] + y) * count_[0] + x);
    }

    template <typename Visit>
    void pairs_of_cell(int x, int y, int z, Visit& visit) const {
        const std::uint32_t here = cell(x, y, z);
        for (std::uint32_t a = first_[here]; a < first_[here + 1]; ++a)
            for (std::uint32_t b = a + 1; b < first_[here + 1]; ++b) visit(squared_distance(atoms_[a], atoms_[b]));
        // The steps to 13 of the 26 neighbouring cells. The pairs with atoms of the other 13 cells are found when the
        // loop comes to the other cells, because their steps lead to this cell.
        static constexpr int half[13][3] = {{1, 0, 0},  {-1, 1, 0}, {0, 1, 0},  {1, 1, 0},  {-1, -1, 1}, {0, -1, 1}, {1, -1, 1},
                                            {-1, 0, 1}, {0, 0, 1},  {1, 0, 1},  {-1, 1, 1}, {0, 1, 1},   {1, 1, 1}};
        for (const auto& step : half) {
            const std::uint32_t there = cell((x + step[0] + count_[0]) % count_[0], (y + step[1] + count_[1]) % count_[1],
                                             (z + step[2]) % count_[2]);
            for (std::uint32_t a = first_[here]; a < first_[here + 1]; ++a)
                for (std::uint32_t b = first_[there]; b < first_[there + 1]; ++b)
                    visit(squared_distance(atoms_[a], atoms_[b]));
        }
    }

    double squared_distance(std::size_t i, std::size_t j) const {
        double sum = 0;
        for (int axis = 0; axis < 3; ++axis) {
            const double d = shortest(positions_[3 * i + axis] - positions_[3 * j + axis], box_[axis]);
            sum += d * d;
        }
        return sum;
    }

    std::span<const double> positions_;
    Box box_;
    std::array<int, 3> count_{};
    std::vector<std::uint32_t> first_;
    std::vector<std::uint32_t> atoms_;
};

}  // namespace melt
