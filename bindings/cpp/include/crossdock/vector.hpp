// std::vector in shared memory. The same bytes are a NumPy array in Python and an array pointer in C and Fortran.
#pragma once

#include <crossdock/detail/block.hpp>

#include <algorithm>
#include <compare>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <ranges>
#include <span>
#include <stdexcept>

namespace crossdock {

/// A vector is contiguous and can grow. Its elements are aligned to 64 bytes, and its header has 32 bytes
/// (detail/block.hpp). Iterators are plain pointers of this process, so iterating costs the same as in std::vector.
/// Repeated growth costs little per element. If a process is killed at any instruction, the vector stays valid,
/// provided that its elements are plain data, crossdock containers, or aggregates of them.
///
/// There are three differences from std::vector. A vector is made with an allocator and always keeps this allocator. If
/// there is no memory, crossdock::error (no_space) is thrown. vector<bool> contains bools. Several readers may use a
/// vector at the same time; while one task changes a vector, no other task may use it.
///
/// An assignment makes room before it gives up the old elements, so after no_space the vector is as it was. There are
/// two exceptions: if the elements need memory of their own, or if only the end of a range tells how many elements it
/// has, the old elements are removed first, so that there need not be memory for both. After no_space the vector may
/// then have some of the new elements instead.
template <class T>
class vector {
  static_assert(std::is_object_v<T> && !std::is_const_v<T>, "crossdock: a vector's elements are objects");

 public:
  using value_type = T;
  using allocator_type = allocator<T>;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using reference = T&;
  using const_reference = const T&;
  using pointer = T*;
  using const_pointer = const T*;
  using iterator = T*;
  using const_iterator = const T*;
  using reverse_iterator = std::reverse_iterator<iterator>;
  using const_reverse_iterator = std::reverse_iterator<const_iterator>;

  vector(const allocator_type& a) noexcept : block_(a) {}  // NOLINT: Listing 4 writes v(alloc)
  vector(size_type n, const allocator_type& a) : block_(a) { resize(n); }
  vector(size_type n, const T& value, const allocator_type& a) : block_(a) { resize(n, value); }
  template <std::input_iterator It>
  vector(It first, It last, const allocator_type& a) : block_(a) {
    append(first, last);
  }
  vector(std::initializer_list<T> values, const allocator_type& a) : block_(a) { append(values); }
  template <std::ranges::input_range R>
    requires(!std::same_as<std::remove_cvref_t<R>, vector> && std::constructible_from<T, std::ranges::range_reference_t<R>>)
  vector(R&& values, const allocator_type& a) : block_(a) {
    append(values);
  }
  /// A copy is made in the region of the original, unless another allocator is given.
  vector(const vector& other) : vector(other, other.get_allocator()) {}
  vector(const vector& other, const allocator_type& a) : block_(a) { append(other); }
  vector(vector&& other) noexcept : block_(other.get_allocator()) { block_.steal(other.block_); }
  vector(vector&& other, const allocator_type& a) : block_(a) { take(std::move(other)); }
  ~vector() = default;

  vector& operator=(const vector& other) {
    if (this != &other) assign(other);
    return *this;
  }
  vector& operator=(vector&& other) {
    if (this != &other) take(std::move(other));
    return *this;
  }
  vector& operator=(std::initializer_list<T> values) { return (assign(values), *this); }
  /// Copies the elements of any range, for example a std::vector.
  template <std::ranges::input_range R>
    requires(!std::same_as<std::remove_cvref_t<R>, vector> && std::constructible_from<T, std::ranges::range_reference_t<R>>)
  vector& operator=(R&& values) {
    return (assign(values), *this);
  }

  template <std::ranges::input_range R>
  void assign(R&& values) {
    if constexpr (std::ranges::sized_range<R>) reserve(static_cast<size_type>(std::ranges::size(values)));
    clear();
    append(values);
  }
  void assign(std::initializer_list<T> values) { assign(std::span<const T>(values.begin(), values.size())); }
  void assign(size_type n, const T& value) {
    T copy(value);
    reserve(n);
    clear();
    resize(n, copy);
  }
  template <std::input_iterator It>
  void assign(It first, It last) {
    assign(std::ranges::subrange(first, last));
  }

  allocator_type get_allocator() const noexcept { return block_.get_allocator(); }
  size_type size() const noexcept { return block_.size(); }
  size_type capacity() const noexcept { return block_.capacity(); }
  static constexpr size_type max_size() noexcept { return std::numeric_limits<difference_type>::max() / sizeof(T); }
  bool empty() const noexcept { return size() == 0; }
  T* data() noexcept { return block_.data(); }
  const T* data() const noexcept { return block_.data(); }
  std::span<T> span() noexcept { return {data(), size()}; }
  std::span<const T> span() const noexcept { return {data(), size()}; }

  T& operator[](size_type i) noexcept { return block_.elements()[i]; }
  const T& operator[](size_type i) const noexcept { return block_.elements()[i]; }
  T& at(size_type i) { return (in_range(i), data()[i]); }
  const T& at(size_type i) const { return (in_range(i), data()[i]); }
  T& front() noexcept { return *data(); }
  const T& front() const noexcept { return *data(); }
  T& back() noexcept { return data()[size() - 1]; }
  const T& back() const noexcept { return data()[size() - 1]; }

  iterator begin() noexcept { return data(); }
  iterator end() noexcept { return data() + size(); }
  const_iterator begin() const noexcept { return data(); }
  const_iterator end() const noexcept { return data() + size(); }
  const_iterator cbegin() const noexcept { return begin(); }
  const_iterator cend() const noexcept { return end(); }
  reverse_iterator rbegin() noexcept { return reverse_iterator(end()); }
  reverse_iterator rend() noexcept { return reverse_iterator(begin()); }
  const_reverse_iterator rbegin() const noexcept { return const_reverse_iterator(end()); }
  const_reverse_iterator rend() const noexcept { return const_reverse_iterator(begin()); }

  void reserve(size_type n) {
    if (n > capacity()) block_.reallocate(n);
  }
  void shrink_to_fit() {
    if (capacity() > std::max<size_type>(size(), 1)) block_.reallocate(size());
  }
  void clear() noexcept { truncate(0); }

  /// New elements are value-initialised: numbers are 0.
  void resize(size_type n) {
    make_room(n);
    if (n < size()) return truncate(n);
    for (T* place = end(); size() < n && !std::is_trivially_default_constructible_v<T>; ++place) {
      construct(place);
      block_.set_size(size() + 1);
    }
    if constexpr (std::is_trivially_default_constructible_v<T>) {
      std::uninitialized_value_construct_n(end(), n - size());
      block_.set_size(n);
    }
  }
  void resize(size_type n, const T& value) {
    if (n <= size()) return truncate(n);
    T copy(value);  // `value` may be an element of this vector, and the elements move now
    make_room(n);
    if (n < size()) return truncate(n);
    while (size() < n) append_one(copy);
  }

  void push_back(const T& value) { emplace_back(value); }
  void push_back(T&& value) { emplace_back(std::move(value)); }
  template <class... Args>
  T& emplace_back(Args&&... args) {
    const size_type n = size();
    if (n < capacity()) [[likely]] {
      T* place = block_.elements() + n;
      construct(place, std::forward<Args>(args)...);
      block_.set_size(n + 1);
      return *place;
    }
    return emplace_back_growing(std::forward<Args>(args)...);
  }
  void pop_back() noexcept { truncate(size() - 1); }

  /// Appends a range. The range must not be part of this vector.
  template <std::ranges::input_range R>
  void append(R&& values) {
    if constexpr (std::ranges::sized_range<R>) make_room(size() + static_cast<size_type>(std::ranges::size(values)));
    append(std::ranges::begin(values), std::ranges::end(values));
  }
  template <std::input_iterator It, std::sentinel_for<It> End>
  void append(It first, End last) {
    constexpr bool counted = std::sized_sentinel_for<End, It>;
    if constexpr (counted) make_room(size() + static_cast<size_type>(last - first));
    if constexpr (counted && std::contiguous_iterator<It> && std::is_same_v<std::iter_value_t<It>, T> && std::is_trivially_copyable_v<T>) {
      const auto n = static_cast<size_type>(last - first);
      detail::relocate_n(std::to_address(first), n, end());
      block_.set_size(size() + n);
    } else {
      for (; first != last; ++first) emplace_back(*first);
    }
  }
  void append(std::initializer_list<T> values) { append(std::span<const T>(values.begin(), values.size())); }

  template <class... Args>
  iterator emplace(const_iterator where, Args&&... args) {
    const auto i = where - cbegin();
    emplace_back(std::forward<Args>(args)...);
    std::rotate(begin() + i, end() - 1, end());
    return begin() + i;
  }
  iterator insert(const_iterator where, const T& value) { return emplace(where, value); }
  iterator insert(const_iterator where, T&& value) { return emplace(where, std::move(value)); }
  template <std::input_iterator It>
  iterator insert(const_iterator where, It first, It last) {
    const auto i = where - cbegin();
    const auto old_size = static_cast<difference_type>(size());
    append(first, last);
    std::rotate(begin() + i, begin() + old_size, end());
    return begin() + i;
  }
  iterator insert(const_iterator where, std::initializer_list<T> values) { return insert(where, values.begin(), values.end()); }
  iterator erase(const_iterator where) { return erase(where, where + 1); }
  iterator erase(const_iterator first, const_iterator last) {
    T* const to = begin() + (first - cbegin());
    T* const new_end = std::move(begin() + (last - cbegin()), end(), to);
    truncate(static_cast<size_type>(new_end - begin()));
    return to;
  }

  /// Exchanges the elements. Each vector keeps its region, so between two regions the elements are copied. After an
  /// error both vectors are as they were. std::swap moves through a third vector, and does not promise this.
  void swap(vector& other) {
    if (get_allocator() == other.get_allocator()) {
      block_.swap(other.block_);
    } else if constexpr (std::is_trivially_copyable_v<T> && std::is_swappable_v<T>) {
      // Making room heals the region, and a vector that a dead member had half changed may then have another size.
      while (capacity() < other.size() || other.capacity() < size()) {
        reserve(other.size());
        other.reserve(size());
      }
      const size_type common = std::min(size(), other.size());
      std::swap_ranges(begin(), begin() + common, other.begin());
      vector& longer = size() > common ? *this : other;
      vector& shorter = &longer == this ? other : *this;
      shorter.append(longer.begin() + common, longer.end());
      longer.truncate(common);
    } else if constexpr (std::is_copy_constructible_v<T>) {
      vector theirs(std::as_const(other), get_allocator());
      vector mine(std::as_const(*this), other.get_allocator());
      block_.swap(theirs.block_);
      other.block_.swap(mine.block_);
    } else {  // elements that can only be moved: after an error, some of them may be gone
      vector mine(std::move(*this), get_allocator());
      *this = std::move(other);
      other = std::move(mine);
    }
  }
  friend void swap(vector& a, vector& b) { a.swap(b); }

  friend bool operator==(const vector& a, const vector& b) { return std::ranges::equal(a, b); }
  friend auto operator<=>(const vector& a, const vector& b)
    requires std::totally_ordered<T>
  {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end(), [](const T& x, const T& y) {
      return x < y ? std::weak_ordering::less : y < x ? std::weak_ordering::greater : std::weak_ordering::equivalent;
    });
  }

  /// Checks that the header of a vector that was opened in shared memory stays within the region. Error: corrupt.
  void check_in(crossdock_region* region) const {
    void* elements = nullptr;
    std::uint64_t n = 0;
    detail::check(crossdock_vector_view(region, reinterpret_cast<const crossdock_vector*>(this), sizeof(T), &elements, &n));
  }
  /// Makes a second copy of the header, which points to the same elements. A container of vectors calls this function
  /// when it moves its vectors to a new block.
  void relocate_to(vector* to) const noexcept { block_.relocate_to(&to->block_); }

 private:
  template <class... Args>
  void construct(T* place, Args&&... args) {
    if constexpr (std::is_trivially_copyable_v<T>) {
      ::new (static_cast<void*>(place)) T(std::forward<Args>(args)...);
    } else {
      detail::construct_in(allocator<void>(get_allocator()), place, std::forward<Args>(args)...);
    }
  }
  void append_one(const T& value) {
    construct(end(), value);
    block_.set_size(size() + 1);
  }
  template <class... Args>
  [[gnu::noinline]] T& emplace_back_growing(Args&&... args) {
    if constexpr (std::is_trivially_copyable_v<T>) {
      T value(std::forward<Args>(args)...);  // made first, because the arguments may lie in the old block
      while (size() == capacity()) block_.reallocate(block_.grown(size() + 1));
      append_one(value);
      return back();
    } else {
      block_.reallocate_with(block_.grown(size() + 1), [&](T* place) { construct(place, std::forward<Args>(args)...); });
      block_.set_size(size() + 1);
      return back();
    }
  }
  void make_room(size_type n) {
    if (n > capacity()) block_.reallocate(size() == 0 ? n : block_.grown(n));
  }
  void truncate(size_type n) noexcept {
    T* const first = data() + n;
    const size_type gone = size() - n;
    block_.set_size(n);
    detail::in_order();
    if constexpr (!std::is_trivially_destructible_v<T>) std::destroy_n(first, gone);
  }
  /// Takes over the elements of `other`. Makes room for them before it gives up this vector's elements.
  void take(vector&& other) {
    if (get_allocator() == other.get_allocator()) {
      clear();
      block_.swap(other.block_);
    } else {
      reserve(other.size());
      clear();
      for (T& value : other) emplace_back(std::move(value));
      other.clear();
    }
  }
  void in_range(size_type i) const {
    if (i >= size()) throw std::out_of_range("crossdock::vector: index " + std::to_string(i) + " of " + std::to_string(size()));
  }

  detail::block<T> block_;
};

/// Removes each element x of the vector for which x == value, as std::erase does.
template <class T, class U>
std::size_t erase(vector<T>& v, const U& value) {
  const auto tail = std::remove(v.begin(), v.end(), value);
  const auto n = static_cast<std::size_t>(v.end() - tail);
  v.erase(tail, v.end());
  return n;
}
template <class T, class Predicate>
std::size_t erase_if(vector<T>& v, Predicate predicate) {
  const auto tail = std::remove_if(v.begin(), v.end(), std::move(predicate));
  const auto n = static_cast<std::size_t>(v.end() - tail);
  v.erase(tail, v.end());
  return n;
}

template <class T>
struct shareable<vector<T>> : shareable<T> {};

template <class T>
struct type_name<vector<T>> {
  static constexpr detail::type_text text = detail::compose({"vector<", type_name<T>::value, ">"});
  static constexpr std::string_view value = text.view();
};

}  // namespace crossdock
