// The four words of vector and string in shared memory, and how they change.
//
//     { i64 region, i64 data, u64 size, u64 capacity }     region and data self-relative, 0 = null; size and capacity in
//                                                           elements; elements aligned to 64 bytes
#pragma once

#include <crossdock/allocator.hpp>
#include <crossdock/detail/mapped.hpp>
#include <crossdock/detail/relocate.hpp>
#include <crossdock/type_name.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace crossdock::detail {

/// Owns a block of elements of type T. Its header of four words (region, block, size, capacity) lies in shared memory.
/// Any other member may read these words at any time, also after this process was killed in the middle of a change. So
/// the words are changed in an order in which they never show elements that do not exist, the capacity is never more
/// than the block has, and no two headers name the same block.
template <class T>
class block {
 public:
  static constexpr std::size_t alignment = 64;
  /// The argument `make` of reallocate_with() if no new element has to be made.
  struct nothing {
    void operator()(T*) const noexcept {}
  };

  explicit block(const allocator<T>& a) noexcept : region_(relative(&region_, a.base())) {}
  ~block() {
    if (T* elements = data()) {
      std::destroy_n(elements, size());
      // The words are cleared before the block is freed: if the process is killed in between, the block is only leaked.
      // With the other order, the words could name a block that another object uses already.
      clear();
      get_allocator().raw_deallocate(elements);
    }
  }
  block(const block&) = delete;
  block& operator=(const block&) = delete;

  T* data() const noexcept { return static_cast<T*>(resolve(data_)); }
  /// The address of the elements. The caller must know that there are elements.
  T* elements() const noexcept { return static_cast<T*>(resolve_unchecked(data_)); }
  std::size_t size() const noexcept { return static_cast<std::size_t>(size_); }
  std::size_t capacity() const noexcept { return static_cast<std::size_t>(capacity_); }
  allocator<T> get_allocator() const noexcept { return allocator<T>(resolve(region_)); }

  /// Sets the size. The elements must have been written before, because the new size shows them to other members.
  void set_size(std::size_t n) noexcept {
    in_order();
    size_ = static_cast<count_word>(n);
  }

  /// A capacity for at least `n` elements. It is large enough that repeated growth costs little per element.
  std::size_t grown(std::size_t n) const noexcept {
    constexpr std::size_t least = sizeof(T) >= alignment ? 1 : alignment / sizeof(T);
    return std::max({n, capacity() * 2, least});
  }

  /// Moves the elements to a new block with room for `n` elements (at least size()) in one step. If the process is
  /// killed during the call, the vector has the old block or the new one.
  void reallocate(std::size_t n) { reallocate_with(n, nothing{}); }

  /// Works like reallocate(), and calls make(place) for the element after the last one, while the old elements can
  /// still be read.
  template <class Make>
  void reallocate_with(std::size_t n, Make&& make) {
    static_assert(is_shareable<T>, "crossdock: elements in shared memory may hold no raw pointers and no std:: containers; use crossdock's");
    const mapped in(get_allocator().base());
    if constexpr (std::is_trivially_copyable_v<T> && std::is_same_v<std::remove_cvref_t<Make>, nothing>) {
      if (n > capacity() && in.contains(this)) {
        check(crossdock_vector_reserve(in.get(), reinterpret_cast<crossdock_vector*>(this), sizeof(T), n));
        return;
      }
    }
    // prepare() must come first, because it finishes what a dead member left half done, perhaps in this same vector.
    T* const fresh = prepare(in, std::max<std::size_t>(n, 1));
    struct guard {
      const mapped& in;
      T* memory;
      ~guard() {
        if (!memory) return;
        (void)crossdock_keep(in.get(), memory);
        (void)crossdock_deallocate(in.get(), memory);
      }
    } unless_taken{in, fresh};
    T* const old = data();
    const std::size_t count = size();
    const bool makes = !std::is_same_v<std::remove_cvref_t<Make>, nothing>;
    // If prepare() has healed this vector, the vector may be larger now.
    if (count + makes > n && count > 0) return reallocate_with(count + makes, make);
    n = std::max<std::size_t>(n, 1);
    // A kill may leave the old or the new block, so the capacity must fit both.
    if (n < capacity()) capacity_ = static_cast<count_word>(n);
    make(fresh + count);
    if constexpr (relocatable<T>()) {
      relocate_n(old, count, fresh);
      replace(in, {fresh, count, n}, old);
      unless_taken.memory = nullptr;
    } else {
      // T has move constructors of its own. If the process is killed in this loop, the vector keeps the old block, in
      // which the elements that were already moved are empty.
      try {
        std::uninitialized_move_n(old, count, fresh);
      } catch (...) {
        if constexpr (!std::is_same_v<std::remove_cvref_t<Make>, nothing>) std::destroy_at(fresh + count);
        throw;
      }
      replace(in, {fresh, count, n}, nullptr);
      unless_taken.memory = nullptr;
      std::destroy_n(old, count);
      if (old) get_allocator().raw_deallocate(old);
    }
  }
  /// Takes over the contents of `other`, which lies in the same region.
  void steal(block& other) noexcept {
    const state words{other.data(), other.size(), other.capacity()};
    other.clear();
    put(words);
  }
  /// Exchanges the contents of two blocks in the same region. If the process is killed in between, each block has its
  /// old contents, the contents of the other block, or none.
  void swap(block& other) noexcept {
    const state mine{data(), size(), capacity()};
    const state theirs{other.data(), other.size(), other.capacity()};
    clear();
    other.clear();
    other.put(mine);
    put(theirs);
  }
  /// Makes a second header at `to`, which points to the same elements. No other member may see the memory at `to` yet;
  /// what the memory contains does not matter.
  void relocate_to(block* to) const noexcept {
    to->region_ = relative(&to->region_, resolve(region_));
    to->put({data(), size(), capacity()});
  }

 private:
  struct state {
    T* data;
    std::size_t size;
    std::size_t capacity;
  };

  /// Gives up the elements and the block. After each store the words of the header are valid together: the size is at
  /// most the capacity, and a capacity above 0 has a block.
  void clear() noexcept {
    set_size(0);
    in_order();
    capacity_ = count_word::zero;
    in_order();
    data_ = relative_word::null;
    in_order();
  }
  /// Stores the address of the block, the capacity and the size, in the opposite order to clear(). Before the call, the
  /// address must be null, and capacity and size must be 0.
  void put(const state& s) noexcept {
    data_ = relative(&data_, s.data);
    in_order();
    capacity_ = static_cast<count_word>(s.capacity);
    set_size(s.size);
  }

  /// Allocates memory for a new block. If this process dies before replace(), a healer frees the memory.
  T* prepare(const mapped& in, std::size_t n) {
    if (n > static_cast<std::size_t>(PTRDIFF_MAX) / sizeof(T)) throw error(status::no_space, "no region has room for that many elements");
    void* address = nullptr;
    check(crossdock_prepare(in.get(), n * sizeof(T), std::max(alignof(T), alignment), &address));
    return static_cast<T*>(address);
  }
  void replace(const mapped& in, const state& s, T* old) {
    if (!in.contains(this)) {
      if (s.data) check(crossdock_keep(in.get(), s.data));
      clear();
      put(s);
      if (old) get_allocator().raw_deallocate(old);
      return;
    }
    const std::array<std::uint64_t, 3> words = {static_cast<std::uint64_t>(relative(&data_, s.data)), s.size, s.capacity};
    check(crossdock_replace(in.get(), &data_, words.data(), 3, s.data, old));
  }

  relative_word region_;
  relative_word data_ = relative_word::null;
  count_word size_ = count_word::zero;
  count_word capacity_ = count_word::zero;
};

static_assert(sizeof(block<char>) == sizeof(crossdock_vector) && std::is_standard_layout_v<block<char>>, "the layout is frozen");

}  // namespace crossdock::detail
