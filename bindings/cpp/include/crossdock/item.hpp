// A data object that exactly one task owns (CDI paper, section III).
//
//     auto frame = crossdock::item::create("frame.1", 1 << 20);
//     fill(frame.bytes());
//     std::move(frame).transfer("detect/1");       // `frame` is spent: its memory is the other task's
//     auto back = crossdock::item::access("frame.1");
#pragma once

#include <crossdock/region.hpp>
#include <crossdock/result.hpp>
#include <crossdock/session.hpp>
#include <crossdock/shareable.hpp>
#include <crossdock/timeout.hpp>

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace crossdock {

namespace detail {
using item_ref = counted<crossdock_item, crossdock_item_ref, crossdock_item_unref>;
}

/// How sure a new owner can be that the former owner has no access left.
enum class level : int {
  cooperative = CROSSDOCK_COOPERATIVE,  ///< for tasks that trust each other: no call to the daemon, and no proof
  verified = CROSSDOCK_VERIFIED,        ///< the former owner provably closed the item, or the new owner gets a copy
  strict = CROSSDOCK_STRICT,            ///< the new owner always gets fresh pages
};

/// What happens to an item when its owner dies or leaves.
enum class on_death : int {
  keep = CROSSDOCK_KEEP,                 ///< the item stays with its task, until the task is started again
  return_to_creator = CROSSDOCK_RETURN,  ///< the item goes back to the task that made it
  destroy = CROSSDOCK_DESTROY,           ///< the item is destroyed
};

struct item_options {
  crossdock::level level = crossdock::level::verified;
  crossdock::on_death on_death = crossdock::on_death::keep;
};

/// The element type of an item's span: plain data without pointers.
template <class T>
concept item_element = is_shareable<std::remove_const_t<T>> && std::is_trivially_copyable_v<T>;

class shared_item;

/// An item that this task owns or reads. It can be moved but not copied. Calls that hand the item on must be made on
/// `std::move(x)`. An item that was moved from is empty: using it fails an assertion, or without assertions throws
/// error(status::closed). Spans and references into an item are invalid after the call that takes the item away.
class item_base {
 public:
  item_base(item_base&&) noexcept = default;
  item_base& operator=(item_base&& other) noexcept {
    ref_ = detail::item_ref();  // gives up the item that this object has had so far
    ref_ = std::move(other.ref_);
    session_ = std::move(other.session_);
    return *this;
  }
  item_base(const item_base&) = delete;
  item_base& operator=(const item_base&) = delete;

  std::string key() const {
    std::array<char, CROSSDOCK_NAME_MAX + 1> buffer{};
    detail::check(crossdock_item_key(get(), buffer.data(), buffer.size()));
    return buffer.data();
  }
  std::uint64_t size() const { return place().second; }

  /// The reference to the item, for calls of the C functions.
  crossdock_item* get() const {
    assert(ref_ && "crossdock: this item was moved from (handed on, shared or destroyed)");
    if (!ref_) throw error(status::closed, "this item was moved from (handed on, shared or destroyed): access it again");
    return ref_.get();
  }

 protected:
  // The copy of the session can fail. In this case the caller keeps its reference to the item.
  item_base(detail::item_ref&& ref, const session& s) : session_(s), ref_(std::move(ref)) {}

  std::pair<void*, std::uint64_t> place() const {
    void* data = nullptr;
    std::uint64_t size = 0;
    detail::check(crossdock_item_data(get(), &data, &size));
    return {data, size};
  }
  template <class T>
  std::span<T> elements() const {
    static_assert(item_element<T>, "crossdock: an item holds plain data without raw pointers, or a heap (region())");
    const auto [data, size] = place();
    return {static_cast<T*>(data), static_cast<std::size_t>(size / sizeof(T))};
  }
  detail::item_ref take() noexcept { return std::exchange(ref_, {}); }

  session session_;
  detail::item_ref ref_;
};

/// An item that this task owns.
class item : public item_base {
 public:
  /// Makes an item of `size` zero bytes. Errors: exists (an item has this key; the message names its owner), no_space
  /// (the quota or the node's memory does not suffice), invalid (the key is not a name, or the size is 0), denied (no
  /// grant to own the item).
  static item create(const std::string& key, std::uint64_t size, const item_options& options = {}, const session& s = session()) {
    const crossdock_item_options o = {static_cast<crossdock_item_level>(options.level), static_cast<crossdock_item_policy>(options.on_death)};
    crossdock_item* given = nullptr;
    detail::check(crossdock_item_create(s.get(), key.c_str(), size, &o, &given));
    return item(detail::item_ref(given), s);
  }

  /// Waits until this task owns the item. Errors: timed_out (another task still owns the item; the message names the
  /// task and tells since when it has the item), not_found (the item was destroyed during the wait), busy (this
  /// session has the item open), denied (no grant to own the item).
  static item access(const std::string& key, timeout wait = {}, const session& s = session()) {
    crossdock_item* given = nullptr;
    detail::check(crossdock_item_access(s.get(), key.c_str(), wait.milliseconds(), &given));
    return item(detail::item_ref(given), s);
  }
  /// Works like access, but returns the outcome as a result. With no_wait, the result is status::not_yet while another
  /// task owns the item.
  static result<item> try_access(const std::string& key, timeout wait = no_wait, const session& s = session()) {
    return detail::as_result([&] { return access(key, wait, s); });
  }
  /// Waits for several items and opens the first one that this task owns. The key of the returned item says which one
  /// it is.
  static item access_any(const std::vector<std::string>& keys, timeout wait = {}, const session& s = session()) {
    std::vector<const char*> texts;
    for (const auto& key : keys) texts.push_back(key.c_str());
    crossdock_item* given = nullptr;
    std::size_t index = 0;
    detail::check(crossdock_item_access_any(s.get(), texts.data(), texts.size(), wait.milliseconds(), &index, &given));
    return item(detail::item_ref(given), s);
  }

  /// Returns a description of an item, also if another task owns the item. Error: not_found (there is no item of this
  /// key).
  static crossdock_item_info find(const std::string& key, const session& s = session()) {
    crossdock_item_info info{};
    detail::check(crossdock_item_find(s.get(), key.c_str(), &info));
    return info;
  }
  static bool exists(const std::string& key, const session& s = session()) {
    crossdock_item_info info{};
    const auto found = crossdock_item_find(s.get(), key.c_str(), &info);
    if (found != CROSSDOCK_NOT_FOUND) detail::check(found);
    return found == CROSSDOCK_OK;
  }

  /// The memory of the item. The function cannot be called on a temporary item, because the item would be gone before
  /// its memory is used.
  std::span<std::byte> bytes() & { return elements<std::byte>(); }
  std::span<std::byte> bytes() && = delete;
  /// The memory of the item as elements of type T, as many as fit.
  template <class T>
  std::span<T> as() & {
    return elements<T>();
  }
  template <class T>
  std::span<T> as() && = delete;

  /// Hands the item to a task in one step. `to` is a task such as "combine" (its first rank that accesses the item),
  /// a rank such as "detect/1", or a number such as "#7" (the task that registered 7). Errors: invalid (`to` is none
  /// of these, or is this task), denied (that task has no grant to own the item), busy (the heap in the item is
  /// open). After an error, this object still has the item.
  void transfer(const std::string& to) && {
    detail::check(crossdock_item_transfer(get(), to.c_str()));
    (void)take();
  }
  /// Destroys the item. Tasks that wait for it get the status not_found.
  void destroy() && {
    detail::check(crossdock_item_destroy(get()));
    (void)take();
  }
  /// Lets other tasks read the item. No task can write it until unshare.
  shared_item share() &&;

  /// Makes a new, independent item with the same bytes.
  item copy(const std::string& key) const {
    crossdock_item* given = nullptr;
    detail::check(crossdock_item_copy(get(), key.c_str(), &given));
    return item(detail::item_ref(given), session_);
  }
  /// Gives the item another size, which invalidates its spans. After the error no_space (the quota or the node's
  /// memory does not suffice) the item is as before.
  void resize(std::uint64_t size) { detail::check(crossdock_item_resize(get(), size)); }
  /// Opens the heap in the item, in which containers live as in any region. create_only makes the heap from the item's
  /// zero bytes. The heap is handed on together with the item. While the heap is open, the item cannot be handed on and
  /// the heap cannot be recreated (status::busy).
  crossdock::region region(mode m = open_or_create) & {
    crossdock::session s = session_;  // may fail, so it comes before the region is opened
    crossdock_region* given = nullptr;
    detail::check(crossdock_item_region(get(), static_cast<crossdock_mode>(m), &given));
    return crossdock::region::taken(given, std::move(s));
  }
  crossdock::region region(mode m = open_or_create) && = delete;

 private:
  friend class shared_item;
  item(detail::item_ref&& ref, const session& s) : item_base(std::move(ref), s) {}
};

/// An item that is shared for reading. The owner gets such an object from share, and a reader gets one from read.
class shared_item : public item_base {
 public:
  /// Waits until the owner shares the item, and opens it for reading. A reader cannot write the item.
  static shared_item read(const std::string& key, timeout wait = {}, const session& s = session()) {
    crossdock_item* given = nullptr;
    detail::check(crossdock_item_read(s.get(), key.c_str(), wait.milliseconds(), &given));
    return shared_item(detail::item_ref(given), s);
  }

  std::span<const std::byte> bytes() const& { return elements<const std::byte>(); }
  std::span<const std::byte> bytes() && = delete;
  template <class T>
  std::span<const T> as() const& {
    return elements<const T>();
  }
  template <class T>
  std::span<const T> as() && = delete;

  /// For the owner: takes the item back. The call waits, at most until the deadline, until the readers have closed
  /// the item. A reader that still has the item open at the deadline keeps the old bytes, and the owner gets a copy.
  /// Error: denied (this process is a reader).
  item unshare(timeout wait = {}) && {
    detail::check(crossdock_item_unshare(get(), wait.milliseconds()));
    return item(std::move(ref_), session_);
  }

 private:
  friend class item;
  shared_item(detail::item_ref&& ref, const session& s) : item_base(std::move(ref), s) {}
};

inline shared_item item::share() && {
  detail::check(crossdock_item_share(get()));
  return shared_item(std::move(ref_), session_);
}

/// Registers a number for this task: transfer("#7") then means the task that registered 7 (CDI_register).
inline void register_number(std::uint64_t number, const session& s = session()) { detail::check(crossdock_session_register_number(s.get(), number)); }

}  // namespace crossdock
