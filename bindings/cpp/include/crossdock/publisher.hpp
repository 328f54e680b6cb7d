// The publisher of a series: it works on ordinary memory in place and publishes consistent versions of it.
#pragma once

#include <crossdock/detail/counted.hpp>
#include <crossdock/session.hpp>
#include <crossdock/variable.hpp>

#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <span>

namespace crossdock {

namespace detail {
using publisher_ref = counted<crossdock_publisher, crossdock_publisher_ref, crossdock_publisher_unref>;

/// For one publisher: the names of the variables whose memory a vector uses.
class taken_variables {
 public:
  /// Marks the variable as used by a vector. Returns false if another vector uses it already.
  bool take(const std::string& variable) {
    const std::lock_guard lock(mutex_);
    return names_.insert(variable).second;
  }
  void give_back(const std::string& variable) noexcept {
    const std::lock_guard lock(mutex_);
    names_.erase(variable);
  }

 private:
  std::mutex mutex_;
  std::set<std::string> names_;
};
}  // namespace detail

template <class T>
class series_allocator;

/// The options of a new series, as in crossdock_series_options of crossdock.h.
struct series_options {
  attributes declared{};  ///< the attributes that versions will carry; their values are not used
  std::uint64_t capacity = 0;
  std::uint32_t chunk = 0;
  std::uint32_t keep = 0;
  std::uint32_t max_observers = 64;
  crossdock_full full = CROSSDOCK_FULL_WITHHOLD;
  crossdock_detect detect = CROSSDOCK_DETECT_AUTO;
  crossdock_pages pages = CROSSDOCK_PAGES_STAY;
};

/// Publishes a series. Copies are the same publisher; the series ends when the last copy is destroyed. Only one thread
/// at a time may use the publisher.
class publisher {
 public:
  /// Begins to publish a series. Errors: exists (a living publisher has the name; the message names it), invalid (a
  /// name, type, shape or size is not allowed), denied (no grant to publish the series), no_space (the quota or the
  /// node's memory does not suffice).
  publisher(const std::string& name, const std::vector<variable>& variables, const series_options& options = {},
            const session& s = session()) {
    std::vector<detail::native_attributes> constants;
    std::vector<crossdock_variable> list;
    constants.reserve(variables.size());
    for (const variable& v : variables) {
      constants.emplace_back(v.constants);
      crossdock_variable c{v.name.c_str(), v.type.c_str(), static_cast<std::uint32_t>(v.shape.size()), v.order, {}, {}, nullptr, 0};
      detail::copy_lengths(v.shape, c.shape);
      detail::copy_lengths(v.max_shape, c.max_shape);
      c.constants = constants.back().data();
      c.constant_count = constants.back().size();
      list.push_back(c);
    }
    const detail::native_attributes declared(options.declared);
    const crossdock_series_options o{options.capacity, options.chunk, options.keep, options.max_observers, options.full, options.detect, options.pages};
    crossdock_publisher* given = nullptr;
    detail::check(crossdock_publisher_open(s.get(), name.c_str(), list.data(), list.size(), declared.data(), declared.size(), &o, &given));
    ref_ = detail::publisher_ref(given);
  }

  /// The elements of a variable, in place. The address stays the same as long as the publisher exists; the length
  /// follows resize. The pages stay in place, too, so that the memory can be registered (RDMA, io_uring, CUDA, a
  /// pending MPI_Irecv). There are two exceptions: the pages move with CROSSDOCK_PAGES_MAY_MOVE, and after begin.
  template <class T>
  std::span<T> span(const std::string& variable) const {
    const auto [data, bytes] = memory(variable);
    return {static_cast<T*>(data), static_cast<std::size_t>(bytes / sizeof(T))};
  }
  std::pair<void*, std::uint64_t> memory(const std::string& variable) const {
    void* data = nullptr;
    std::uint64_t bytes = 0;
    detail::check(crossdock_publisher_memory(get(), variable.c_str(), &data, &bytes));
    return {data, bytes};
  }

  /// Gives a variable another shape, within its largest shape. New elements are zero. Errors: invalid (the shape is
  /// beyond the largest one), not_found (there is no such variable), busy (a version is begun).
  void resize(const std::string& variable, const std::vector<std::uint64_t>& shape) {
    detail::check(crossdock_publisher_resize(get(), variable.c_str(), shape.data(), static_cast<std::uint32_t>(shape.size())));
  }
  /// Tells the library that these elements were written. Only CROSSDOCK_DETECT_HINTS needs such hints.
  template <class T>
  void touched(const std::string& variable, std::span<T> part) {
    const auto from = reinterpret_cast<const std::byte*>(part.data()) - static_cast<const std::byte*>(memory(variable).first);
    detail::check(crossdock_publisher_touched(get(), variable.c_str(), static_cast<std::uint64_t>(from), part.size_bytes()));
  }

  /// Publishes the present contents of the variables and returns the version's number. 0 means that the version was
  /// withheld for lack of room; its changes are part of the next version. The error no_space with CROSSDOCK_FULL_FAIL
  /// means that nothing was published and nothing is lost.
  std::uint64_t publish(const attributes& now = {}) {
    const detail::native_attributes list(now);
    std::uint64_t sequence = 0;
    detail::check(crossdock_publisher_publish(get(), list.data(), list.size(), &sequence));
    return sequence;
  }

  /// A version that is written directly. As long as this object exists, the variables' memory is the next version
  /// itself, at other addresses. Write all of it, and then publish. If the object is destroyed without a publish, the
  /// version is abandoned. After a publish other pages lie at the variables' own addresses, so memory that was
  /// registered must be registered again.
  class [[nodiscard]] next_version {
   public:
    explicit next_version(publisher& of) : of_(of) { detail::check(crossdock_publisher_begin(of.get())); }
    next_version(const next_version&) = delete;
    next_version& operator=(const next_version&) = delete;
    ~next_version() {
      if (!done_) (void)crossdock_publisher_abandon(of_.get());
    }
    std::uint64_t publish(const attributes& now = {}) {
      const auto sequence = of_.publish(now);
      done_ = true;
      return sequence;
    }

   private:
    publisher& of_;
    bool done_ = false;
  };
  next_version begin() { return next_version(*this); }

  crossdock_publisher_statistics statistics() const {
    crossdock_publisher_statistics s{};
    detail::check(crossdock_publisher_statistics_get(get(), &s));
    return s;
  }
  /// Ends the series, so that no more versions come. Observers still get the last version.
  void end() { detail::check(crossdock_publisher_end(get())); }

  /// The reference to the publisher, for calls of the C functions.
  crossdock_publisher* get() const noexcept { return ref_.get(); }

 private:
  template <class T>
  friend class series_allocator;
  detail::publisher_ref ref_;
  std::shared_ptr<detail::taken_variables> taken_ = std::make_shared<detail::taken_variables>();
};

/// An allocator for programs that keep their data in a std::vector: `std::vector<double, series_allocator<double>> u(n,
/// {publisher, "u"})` lies in the memory of the variable, and is published with it. A variable of one dimension grows
/// to the size that the vector asks for, up to its max_shape. Elements that are made without a value keep the contents
/// of the variable. Only one vector at a time can use a variable; a second vector gets the error busy. A vector that
/// will grow must reserve first, because it cannot move.
template <class T>
class series_allocator {
 public:
  using value_type = T;
  static_assert(std::is_trivially_copyable_v<T>, "crossdock: a version is bytes; its elements must be plain data");

  series_allocator(publisher of, std::string variable) : of_(std::move(of)), variable_(std::make_shared<const std::string>(std::move(variable))) {}
  // A move copies, because a moved-from vector still has its allocator and may be used again.
  series_allocator(const series_allocator&) = default;
  series_allocator& operator=(const series_allocator&) = default;
  template <class U>
  series_allocator(const series_allocator<U>& other) : of_(other.of_), variable_(other.variable_) {}

  T* allocate(std::size_t n) {
    if (!of_.taken_->take(*variable_)) {
      throw error(status::busy, "variable '" + *variable_ + "' is another vector's, or this one would have to move: reserve() first");
    }
    try {
      if (n > of_.memory(*variable_).second / sizeof(T)) of_.resize(*variable_, {n});
      return static_cast<T*>(of_.memory(*variable_).first);
    } catch (...) {
      of_.taken_->give_back(*variable_);
      throw;
    }
  }
  void deallocate(T*, std::size_t) noexcept { of_.taken_->give_back(*variable_); }

  template <class U>
  void construct(U* place) {
    ::new (static_cast<void*>(place)) U;
  }
  template <class U, class... Args>
  void construct(U* place, Args&&... args) {
    ::new (static_cast<void*>(place)) U(std::forward<Args>(args)...);
  }

  template <class U>
  bool same_place(const series_allocator<U>& other) const noexcept {
    return of_.taken_ == other.of_.taken_ && *variable_ == *other.variable_;
  }
  template <class U>
  friend bool operator==(const series_allocator& a, const series_allocator<U>& b) noexcept {
    return a.same_place(b);
  }

 private:
  template <class U>
  friend class series_allocator;
  publisher of_;
  std::shared_ptr<const std::string> variable_;  // copies of an allocator must not throw
};

/// Removes the name of a series. Observers keep their versions. Errors: not_found (there is no series of this name),
/// denied (no grant to remove it), busy (a member publishes the series).
inline void remove_series(const std::string& name, const session& s = session()) { detail::check(crossdock_series_remove(s.get(), name.c_str())); }

}  // namespace crossdock
