// A region: shared memory with a heap and named objects in it (Dhmem paper, section III-C).
#pragma once

#include <crossdock/detail/object.hpp>
#include <crossdock/handle.hpp>
#include <crossdock/result.hpp>
#include <crossdock/session.hpp>
#include <crossdock/transport.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace crossdock {

class port;

/// The types that simple<T> accepts: no part of the type can grow, and no part needs a destructor.
template <class T>
concept simple_type = is_shareable<T> && std::is_trivially_destructible_v<T> && !detail::has_allocator_in_it<T>();

/// A type that container<T> accepts: it takes the region's allocator, or it is an aggregate of such types.
template <class T>
concept container_type = is_shareable<T> && std::is_class_v<T>;

/// An open region. Copies of this object share the region, which stays mapped as long as one copy exists. After that,
/// addresses and references into the region are invalid. Thread-safe. Every function throws crossdock::error; the
/// functions whose names begin with try_ return a result instead.
class region {
 public:
  using statistics_type = crossdock_region_statistics;
  /// The size that a program gives if an existing region may have any capacity; a new region then gets 1 GiB. A
  /// capacity is only address space: memory is taken when it is used.
  static constexpr std::uint64_t default_size = CROSSDOCK_ANY_SIZE;

  /// Opens the region of this name in the workflow, or makes it.
  explicit region(const std::string& name) : region(mode::open_or_create, name) {}
  /// `size` is the capacity of the region in bytes, as in the other languages; the heap's tables take about a twentieth
  /// of it. `size` is used only if this call makes the region. open_or_create fails with invalid if the existing region
  /// is smaller. `wait` is how long open_only waits for another task to make the region.
  region(mode m, const std::string& name, std::uint64_t size = default_size, timeout wait = no_wait) : region(session(), m, name, size, wait) {}
  region(mode m, const std::string& name, timeout wait) : region(m, name, default_size, wait) {}
  region(session s, mode m, const std::string& name, std::uint64_t size = default_size, timeout wait = no_wait) : session_(std::move(s)) {
    crossdock_region* given = nullptr;
    detail::check(crossdock_region_open(session_.get(), name.c_str(), static_cast<crossdock_mode>(m), size, wait.milliseconds(), &given));
    adopt(given);
  }
  /// Copies the region `name` of any node of the site to this node, under the name `copy`, and opens the copy. The copy
  /// has the bytes of one moment in which no task had the region open. Handles that were saved in the region are valid in
  /// the copy. Within `wait` the call waits for the region to be made, and for all tasks to close it. Errors: busy (a
  /// task still has the region open at the deadline), exists (the name `copy` is taken), not_found (no node has the
  /// region at the deadline), no_space (the quota or this node's memory does not suffice), denied (no grant to read
  /// the region, or to create and read the copy), timed_out (the copying takes longer than `wait`), disconnected (the
  /// region's node or the catalog was lost meanwhile). After an error there is no copy.
  static region copied(const std::string& name, const std::string& copy, timeout wait = default_wait, session s = session()) {
    crossdock_region* given = nullptr;
    detail::check(crossdock_region_copy(s.get(), name.c_str(), copy.c_str(), wait.milliseconds(), &given));
    return taken(given, std::move(s));
  }
  /// Moves the region `name` of any node of the site to this node, and opens it. The region keeps its name, and its
  /// handles stay valid. A region that is on this node already is only opened. Errors: as for copied. After an error the
  /// region is where it was.
  static region moved(const std::string& name, timeout wait = default_wait, session s = session()) {
    crossdock_region* given = nullptr;
    detail::check(crossdock_region_move(s.get(), name.c_str(), wait.milliseconds(), &given));
    return taken(given, std::move(s));
  }
  /// Returns the region that a handle points into. The region is opened if this process does not have it open.
  static region of(handle h, session s = session()) {
    crossdock_region* given = nullptr;
    detail::check(crossdock_region_of(s.get(), h, &given));
    region found(std::move(s));
    found.adopt(given);
    return found;
  }
  /// Takes over the counted reference that a C function returned.
  static region taken(crossdock_region* given, session s = session()) {
    region found(std::move(s));
    found.adopt(given);
    return found;
  }
  static result<region> try_open(mode m, const std::string& name, std::uint64_t size = default_size, timeout wait = no_wait) {
    return detail::as_result([&] { return region(m, name, size, wait); });
  }

  /// Opens or makes an object of fixed size: a number, a struct of numbers or a fixed array (Listing 3). A new object
  /// is T{} (zeros). Errors: wrong_type (the object has another type; the message has both types), no_space (the
  /// region, the quota or the node is full), invalid (the name is not allowed; or with recreate, the old object is of
  /// another opaque type, which this process has never used, and stays: call remove<T> first).
  template <class T>
  T& simple(const std::string& name) {
    return simple<T>(mode::open_or_create, name);
  }
  template <class T>
  T& simple(mode m, const std::string& name, timeout wait = no_wait) {
    static_assert(simple_type<T>, "crossdock: simple<T> takes plain data without raw pointers; use container<T> for what grows");
    if (m == mode::recreate) remove_old<T>(name);
    return *detail::open_object<T>(get(), base_, name, m, only_open_waits(m, wait));
  }

  /// Opens or makes a container, or a struct that passes the allocator on to its containers (Listing 4). The
  /// constructor of a new object gets `args` and then the allocator. The errors are those of simple(). With recreate,
  /// the old object is gone if the region is too full for the new one, or if its constructor throws.
  template <class T, class... Args>
  T& container(const std::string& name, Args&&... args) {
    return container<T>(mode::open_or_create, name, std::forward<Args>(args)...);
  }
  template <class T, class... Args>
  T& container(mode m, const std::string& name, Args&&... args) {
    static_assert(container_type<T>, "crossdock: container<T> takes crossdock's containers, or structs of them: std:: containers point into their own process");
    if (m == mode::recreate) remove_old<T>(name);
    return *detail::open_object<T>(get(), base_, name, m, only_open_waits(m, no_wait), std::forward<Args>(args)...);
  }

  /// Waits for an object that another task makes, simple or container, and opens it. Errors: not_found (there is no
  /// such object, and `wait` is no_wait), timed_out (no such object came before the deadline), not_yet (a task is still
  /// making the object at the deadline or, with no_wait, at the time of the call), wrong_type (the object has another
  /// type).
  template <class T>
  T& open(const std::string& name, timeout wait = default_wait) {
    static_assert(is_shareable<T>, "crossdock: this type cannot live in shared memory");
    return *detail::open_object_only<T>(get(), name, wait);
  }
  template <class T>
  result<T&> try_open(const std::string& name, timeout wait = no_wait) {
    return detail::as_result([&]() -> T& { return open<T>(name, wait); });
  }

  /// Makes an object without a name, which is passed on by its handle. The last user of the object must call destroy.
  template <class T, class... Args>
  T& create(Args&&... args) {
    static_assert(is_shareable<T>, "crossdock: this type cannot live in shared memory");
    T* place = allocator<T>(base_).raw_allocate(1);
    try {
      detail::construct_object(allocator<void>(base_), place, std::forward<Args>(args)...);
    } catch (...) {
      allocator<T>(base_).raw_deallocate(place);
      throw;
    }
    return *place;
  }
  template <class T>
  void destroy(T& object) {
    std::destroy_at(std::addressof(object));
    detail::check(crossdock_deallocate(get(), std::addressof(object)));
  }

  /// The handle of an object of this region. Any task can get the object from it with load. Errors: invalid (the object
  /// is not in this region), bad_handle (the argument is an element or a field and not a whole object).
  template <class T>
  handle save(const T& object) const {
    crossdock_handle h{};
    detail::check(crossdock_handle_save(get(), std::addressof(object), &h));
    return h;
  }
  /// The object that a handle names. Errors: bad_handle (the handle is of another region, or its object was freed, or
  /// it never named an object), wrong_type (the object has another type).
  template <class T>
  T& load(handle h) const {
    static_assert(is_shareable<T>, "crossdock: this type cannot live in shared memory");
    const crossdock_type type = type_of<T>();
    crossdock_object object{};
    detail::check(crossdock_handle_load(get(), h, &type, &object));
    return *detail::opened<T>(get(), object.address);
  }
  template <class T>
  result<T&> try_load(handle h) const {
    return detail::as_result([&]() -> T& { return load<T>(h); });
  }

  /// Removes a named object with everything in it. No task may be using it. Handles to it become invalid (bad_handle).
  /// The destructor runs only if the type is opaque (cpp:Name); the library frees what an object of another type holds.
  /// Errors: not_found (there is no such object), busy (a living member is making it), invalid (the object is of an
  /// opaque type that this process has never used; then call remove<T>).
  void remove(const std::string& name) { detail::remove_object(get(), name); }
  template <class T>
  void remove(const std::string& name) {
    detail::destroyers::instance().learn<T>();
    detail::remove_object(get(), name);
  }
  result<void> try_remove(const std::string& name) {
    return detail::as_result([&] { remove(name); });
  }
  bool contains(const std::string& name) const {
    crossdock_object_info info{};
    const auto s = crossdock_object_find(get(), name.c_str(), &info);
    if (s != CROSSDOCK_NOT_FOUND) detail::check(s);
    return s == CROSSDOCK_OK;
  }
  /// The named objects, in no particular order.
  std::vector<crossdock_object_info> objects() const {
    std::vector<crossdock_object_info> all;
    std::size_t count = 0;
    do {
      all.resize(count);
      detail::check(crossdock_object_list(get(), all.data(), all.size(), &count));
    } while (count > all.size());
    all.resize(count);
    return all;
  }

  /// Opens one end of a port of this workflow (Dhmem paper, Listing 8). `via` selects the transport: low_level, or the transport of
  /// an adapter (mpi).
  template <class Via = low_level_t>
  crossdock::port port(const std::string& name, port_end end, const Via& via = {}, const port_options& options = {});
  crossdock::port port(const std::string& name, port_end end, const port_options& options);

  std::string name() const {
    std::array<char, CROSSDOCK_NAME_MAX + 1> buffer{};
    detail::check(crossdock_region_name(get(), buffer.data(), buffer.size()));
    return buffer.data();
  }
  /// The segment id that this region's handles carry.
  std::uint64_t id() const noexcept { return id_; }
  /// The region's address in this process.
  const void* base() const noexcept { return base_; }
  std::uint64_t capacity() const noexcept { return capacity_; }
  allocator<void> get_allocator() const noexcept { return allocator<void>(base_); }
  statistics_type statistics() const {
    statistics_type s{};
    detail::check(crossdock_region_statistics_get(get(), &s));
    return s;
  }
  /// Repairs now what dead members left half done in the region. The call is optional, because each member that meets
  /// a half-done change repairs it.
  void heal() { detail::check(crossdock_region_heal(get(), nullptr)); }
  const session& its_session() const noexcept { return session_; }
  /// The reference to the region, for calls of the C functions.
  crossdock_region* get() const noexcept { return ref_.get(); }

 private:
  explicit region(session s) : session_(std::move(s)) {}

  /// Removes the object called `name`, if there is one, because a call with recreate makes a T in its place. If the old
  /// object is of an opaque type, making it anew would free only the object itself, and not what it holds. Errors other
  /// than invalid are left to that call, which meets them again.
  template <class T>
  void remove_old(const std::string& name) {
    detail::check_new<T>(get(), name, capacity_);
    detail::destroyers::instance().learn<T>();
    if (const auto removed = try_remove(name); removed.status() == status::invalid) removed.value();
  }

  void adopt(crossdock_region* given) {
    ref_ = detail::region_ref(given);
    void* base = nullptr;
    detail::check(crossdock_region_base(given, &base, &capacity_));
    base_ = base;
    detail::check(crossdock_region_id(given, &id_));
  }
  static constexpr timeout only_open_waits(mode m, timeout wait) noexcept { return m == mode::open_only ? wait : default_wait; }

  session session_;
  detail::region_ref ref_;
  const void* base_ = nullptr;
  std::uint64_t capacity_ = 0;
  std::uint64_t id_ = 0;
};

/// Removes the name of a region. Members that have the region open keep it. Errors: not_found (there is no region of
/// this name), denied (no grant to remove it).
inline void remove_region(const std::string& name, const session& s = session()) { detail::check(crossdock_region_remove(s.get(), name.c_str())); }

template <class T>
allocator<T>::allocator(const region& r) noexcept : allocator(r.base()) {}

/// The name that the Dhmem paper uses for a region.
using Dhmem = region;

}  // namespace crossdock
