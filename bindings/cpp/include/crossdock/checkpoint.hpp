// Reads the checkpoints that `crossdock checkpoint` wrote, and makes names that contain the rank. No daemon is needed.
//
//     if (auto saved = crossdock::restart("checkpoints")) {
//       saved->read("u", std::span(u), crossdock::ranked("field"));
//       step = saved->integer("step", crossdock::ranked("field"));
//     }
#pragma once

#include <crossdock/detail/counted.hpp>
#include <crossdock/publisher.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace crossdock {

/// Appends the rank to a name: `field` becomes `field/3` on rank 3. If `rank` is not given, the rank set by the
/// launcher (Open MPI, MPICH, Slurm, crossdock) is used, and 0 if no launcher set one. Errors: invalid, if the name is
/// no valid name, or is too long with the rank, or if the launcher's environment variable is not a number.
inline std::string ranked(const std::string& name, std::optional<std::uint32_t> rank = {}) {
  std::array<char, CROSSDOCK_NAME_MAX + 1> buffer{};
  detail::check(crossdock_ranked_name(name.c_str(), rank ? std::int64_t{*rank} : -1, buffer.data(), buffer.size()));
  return buffer.data();
}

/// One checkpoint, open for reading. The argument `series` of the functions may be omitted if the file has only one
/// series. Copies refer to the same file.
class checkpoint {
 public:
  /// Opens a checkpoint file by its path. The whole file is read and checked once. Errors: not_found (there is no
  /// such file), corrupt (it is damaged or no checkpoint), denied (this user may not read it), system (the kernel
  /// refuses another call).
  explicit checkpoint(const std::string& path) {
    crossdock_checkpoint* given = nullptr;
    detail::check(crossdock_checkpoint_open(path.c_str(), &given));
    ref_ = reference(given);
  }
  /// Takes over the counted reference that a C function returned.
  explicit checkpoint(crossdock_checkpoint* taken) noexcept : ref_(taken) {}

  std::string path() const {
    std::vector<char> buffer(4097);
    detail::check(crossdock_checkpoint_path(ref_.get(), buffer.data(), buffer.size()));
    return buffer.data();
  }
  /// The newer checkpoints that were skipped because they were damaged, one per line; empty if there were none.
  std::string skipped() const {
    std::vector<char> buffer(16384);
    std::uint32_t count = 0;
    detail::check(crossdock_checkpoint_skipped(ref_.get(), &count, buffer.data(), buffer.size()));
    return buffer.data();
  }
  std::uint64_t sequence(const std::string& series = {}) const {
    std::uint64_t value = 0;
    detail::check(crossdock_checkpoint_sequence(ref_.get(), named(series), &value));
    return value;
  }
  /// Returns an attribute that is a whole number. Errors: not_found (there is no such series or attribute; the
  /// message names the attributes that exist), wrong_type (the attribute is no whole number).
  std::int64_t integer(const std::string& attribute, const std::string& series = {}) const {
    std::int64_t value = 0;
    detail::check(crossdock_checkpoint_integer(ref_.get(), named(series), attribute.c_str(), &value));
    return value;
  }
  double real(const std::string& attribute, const std::string& series = {}) const {
    double value = 0;
    detail::check(crossdock_checkpoint_real(ref_.get(), named(series), attribute.c_str(), &value));
    return value;
  }
  /// Returns an attribute of any kind as text.
  std::string text(const std::string& attribute, const std::string& series = {}) const {
    std::vector<char> buffer(65536);
    detail::check(crossdock_checkpoint_text(ref_.get(), named(series), attribute.c_str(), buffer.data(), buffer.size()));
    return buffer.data();
  }
  /// Type, shape and size of a variable. Error: not_found (there is no such series or variable).
  crossdock_checkpoint_variable variable(const std::string& name, const std::string& series = {}) const {
    crossdock_checkpoint_variable info{};
    detail::check(crossdock_checkpoint_variable_info(ref_.get(), named(series), name.c_str(), &info));
    return info;
  }
  /// Fills memory that has exactly the variable's size. Errors: wrong_type (the variable has another size), not_found
  /// (there is no such series or variable), corrupt (the data are damaged: do not use the memory's contents), system
  /// (the file cannot be read).
  template <class T, std::size_t N>
  void read(const std::string& name, std::span<T, N> into, const std::string& series = {}) const {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>, "bytes are written into the elements");
    detail::check(crossdock_checkpoint_read(ref_.get(), named(series), name.c_str(), into.data(), into.size_bytes()));
  }

 private:
  using reference = detail::counted<crossdock_checkpoint, crossdock_checkpoint_ref, crossdock_checkpoint_unref>;
  static const char* named(const std::string& series) noexcept { return series.empty() ? nullptr : series.c_str(); }

  reference ref_;
};

/// Opens the newest undamaged checkpoint of a folder. Returns nothing if the folder has no checkpoint, which is the
/// case when the program runs for the first time. `name` is the part of the file names before the number (`field`). It
/// may be empty if the folder has checkpoints of only one name. `folder` may also be the path of one checkpoint file,
/// which another rank of the program has chosen. Errors: corrupt (all checkpoints are damaged), invalid (`name` is
/// empty, and the folder has checkpoints of several names; or the given file does not exist), denied (this user may not
/// read the folder or a file), system (the kernel refuses another call).
inline std::optional<checkpoint> restart(const std::string& folder, const std::string& name = {}) {
  crossdock_checkpoint* given = nullptr;
  const auto status = crossdock_checkpoint_restart(folder.c_str(), name.empty() ? nullptr : name.c_str(), &given);
  if (status == CROSSDOCK_NOT_FOUND) return std::nullopt;
  detail::check(status);
  return checkpoint(given);
}

/// Fills the arrays of a publisher from the newest undamaged checkpoint of its series. `folder` may also be the path
/// of one checkpoint file, which another rank of the program has chosen. If there is no checkpoint, because the
/// program starts for the first time, the arrays are not changed and nothing is returned. Errors: corrupt (all
/// checkpoints are damaged), invalid (the checkpoint is of another number of ranks, or the publisher lacks a stored
/// variable, or its largest shape is smaller than the stored one), wrong_type (a stored array has another type than
/// the publisher's), no_space (the node's memory does not suffice), denied (this user may not read the folder or a
/// file), system (the kernel refuses another call).
inline std::optional<checkpoint> restart(const publisher& into, const std::string& folder) {
  crossdock_checkpoint* given = nullptr;
  const auto status = crossdock_publisher_restart(into.get(), folder.c_str(), &given);
  if (status == CROSSDOCK_NOT_FOUND) return std::nullopt;
  detail::check(status);
  return checkpoint(given);
}

}  // namespace crossdock
