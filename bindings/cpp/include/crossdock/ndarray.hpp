// An array of up to eight dimensions in shared memory: numpy.ndarray in Python, an array pointer in Fortran.
#pragma once

#include <crossdock/allocator.hpp>
#include <crossdock/detail/mapped.hpp>
#include <crossdock/type_name.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <type_traits>

namespace crossdock {

enum class order : std::uint32_t {
  c = CROSSDOCK_ORDER_C,              ///< the last index varies fastest, as in C
  fortran = CROSSDOCK_ORDER_FORTRAN,  ///< the first index varies fastest, as in Fortran
};

/// The address, shape and strides of an ndarray, copied out of its header, so that loops need not read the header
/// again. Cheap to copy. Invalid after a reshape.
template <class T, std::size_t Rank>
class array_view {
 public:
  array_view(T* data, const std::array<std::size_t, Rank>& shape, order o) noexcept : data_(data), shape_(shape) {
    std::size_t step = 1;
    for (std::size_t k = 0; k < Rank; ++k) {
      const std::size_t d = o == order::fortran ? k : Rank - 1 - k;
      stride_[d] = step;
      step *= shape[d];
    }
  }
  template <std::convertible_to<std::size_t>... I>
    requires(sizeof...(I) == Rank)
  T& operator()(I... index) const noexcept {
    std::size_t k = 0;
    std::size_t at = 0;
    ((at += static_cast<std::size_t>(index) * stride_[k++]), ...);
    return data_[at];
  }
  T* data() const noexcept { return data_; }
  std::size_t extent(std::size_t d) const noexcept { return shape_[d]; }
  std::size_t stride(std::size_t d) const noexcept { return stride_[d]; }

 private:
  T* data_;
  std::array<std::size_t, Rank> shape_;
  std::array<std::size_t, Rank> stride_{};
};

/// The header has 128 bytes, with the layout of crossdock_ndarray. The elements are contiguous, aligned to 64 bytes,
/// and plain data. A fresh ndarray has rank 0 and no elements. Several readers may use an ndarray at the same time.
/// While a task changes the shape, no other task may use the ndarray.
template <class T>
class ndarray {
  static_assert(std::is_trivially_copyable_v<T>, "crossdock: an ndarray's elements are plain data");

 public:
  using value_type = T;
  using allocator_type = allocator<T>;
  using size_type = std::size_t;
  using iterator = T*;
  using const_iterator = const T*;
  static constexpr std::size_t max_rank = CROSSDOCK_RANK_MAX;

  ndarray(const allocator_type& a) noexcept : region_(detail::relative(&region_, a.base())) {}  // NOLINT: implicit
  ndarray(std::initializer_list<size_type> shape, const allocator_type& a) : ndarray(shape, order::c, a) {}
  ndarray(std::initializer_list<size_type> shape, crossdock::order o, const allocator_type& a) : ndarray(a) { reshape(shape, o); }
  ndarray(const ndarray& other) : ndarray(other, other.get_allocator()) {}
  ndarray(const ndarray& other, const allocator_type& a) : ndarray(a) { *this = other; }
  ndarray(ndarray&& other) noexcept : ndarray(other.get_allocator()) { steal(other); }
  ndarray(ndarray&& other, const allocator_type& a) : ndarray(a) { *this = std::move(other); }
  ~ndarray() { release(); }
  /// If there is no room for the elements, the ndarray is as it was.
  ndarray& operator=(const ndarray& other) {
    if (this == &other) return *this;
    if (other.rank() == 0 && !other.data()) {  // fresh or moved from; a reshape to rank 0 would make one element
      release();
      clear();
      order_ = other.order_;
    } else {
      reshape(other.shape(), other.order());
      std::copy(other.begin(), other.end(), begin());
    }
    return *this;
  }
  ndarray& operator=(ndarray&& other) {
    if (this == &other) return *this;
    if (get_allocator() == other.get_allocator()) {
      release();
      steal(other);
      return *this;
    }
    return *this = std::as_const(other);
  }

  /// Exchanges the elements, shapes and orders. Each ndarray keeps its region, so between two regions the elements are
  /// copied. After an error both ndarrays are as they were. std::swap moves through a third ndarray, and does not
  /// promise this.
  void swap(ndarray& other) {
    if (get_allocator() == other.get_allocator()) return exchange(other);
    ndarray theirs(std::as_const(other), get_allocator());
    ndarray mine(std::as_const(*this), other.get_allocator());
    exchange(theirs);
    other.exchange(mine);
  }
  friend void swap(ndarray& a, ndarray& b) { a.swap(b); }

  /// Gives the ndarray this shape. The elements keep their order in memory, so their indices change; new elements are
  /// 0. If the process is killed at any instruction, the ndarray stays valid. Errors: invalid (more than 8
  /// dimensions), no_space (the region, the quota or the node is full).
  void reshape(std::span<const size_type> shape, crossdock::order o = order::c) {
    static_assert(sizeof(size_type) == sizeof(std::uint64_t));
    const auto* extents = reinterpret_cast<const std::uint64_t*>(shape.data());
    const detail::mapped in(get_allocator().base());
    if (in.contains(this)) {
      detail::check(crossdock_ndarray_reshape(in.get(), reinterpret_cast<crossdock_ndarray*>(this), sizeof(T), static_cast<crossdock_order>(o),
                                              static_cast<std::uint32_t>(shape.size()), extents));
    } else {
      reshape_outside(shape, o);
    }
  }
  void reshape(std::initializer_list<size_type> shape, crossdock::order o = order::c) { reshape(std::span(shape.begin(), shape.size()), o); }

  allocator_type get_allocator() const noexcept { return allocator_type(detail::resolve(region_)); }
  size_type rank() const noexcept { return std::min<size_type>(rank_, max_rank); }
  std::span<const size_type> shape() const noexcept { return {reinterpret_cast<const size_type*>(shape_), rank()}; }
  size_type extent(size_type d) const noexcept { return shape()[d]; }
  crossdock::order order() const noexcept { return static_cast<crossdock::order>(order_); }
  /// The number of elements; a fresh ndarray has none.
  size_type size() const noexcept {
    size_type n = data_ == detail::relative_word::null ? 0 : 1;
    for (size_type extent : shape()) n *= extent;
    return n;
  }
  bool empty() const noexcept { return size() == 0; }
  T* data() noexcept { return static_cast<T*>(detail::resolve(data_)); }
  const T* data() const noexcept { return static_cast<const T*>(detail::resolve(data_)); }
  iterator begin() noexcept { return data(); }
  iterator end() noexcept { return data() + size(); }
  const_iterator begin() const noexcept { return data(); }
  const_iterator end() const noexcept { return data() + size(); }
  std::span<T> span() noexcept { return {data(), size()}; }
  std::span<const T> span() const noexcept { return {data(), size()}; }

  /// An array_view of all elements, for loops. Error: invalid if the ndarray has another rank than `Rank`.
  template <std::size_t Rank>
  array_view<T, Rank> view() {
    return {data(), extents<Rank>(), order()};
  }
  template <std::size_t Rank>
  array_view<const T, Rank> view() const {
    return {data(), extents<Rank>(), order()};
  }
  /// Returns one element. In loops, call view() first.
  template <std::convertible_to<size_type>... I>
  T& operator()(I... index) {
    return view<sizeof...(I)>()(index...);
  }
  template <std::convertible_to<size_type>... I>
  const T& operator()(I... index) const {
    return view<sizeof...(I)>()(index...);
  }

  /// Checks that the header of an ndarray that was opened in shared memory stays within the region. Error: corrupt.
  void check_in(crossdock_region* region) const {
    void* elements = nullptr;
    detail::check(crossdock_ndarray_view(region, reinterpret_cast<const crossdock_ndarray*>(this), sizeof(T), &elements, nullptr, nullptr, nullptr));
  }
  void relocate_to(ndarray* to) const noexcept {
    ::new (static_cast<void*>(to)) ndarray(get_allocator());
    to->put(words());
  }

 private:
  template <std::size_t Rank>
  std::array<std::size_t, Rank> extents() const {
    if (rank() != Rank) {
      throw error(status::invalid, "this ndarray has " + std::to_string(rank()) + " dimensions, and " + std::to_string(Rank) + " are asked for");
    }
    std::array<std::size_t, Rank> all{};
    std::copy_n(shape().begin(), Rank, all.begin());
    return all;
  }
  struct state {
    const T* data;
    std::uint64_t capacity_bytes;
    std::uint32_t rank;
    std::uint32_t order;
    std::array<std::uint64_t, max_rank> extents;
  };

  state words() const noexcept {
    state s{data(), capacity_bytes_, rank_, order_, {}};
    std::copy(std::begin(shape_), std::end(shape_), s.extents.begin());
    return s;
  }
  /// Gives up the elements and frees the block.
  void release() noexcept {
    if (T* elements = data()) {
      // The words are cleared before the block is freed: if the process is killed in between, the block is only leaked.
      // With the other order, the words could name a block that another object uses already.
      clear();
      get_allocator().raw_deallocate(elements);
    }
  }
  /// Gives up the elements and the block. After each store the header is valid, so other members can read it even if
  /// this process is killed in between. While the other words of the header change, the shape is {0}, which fits every
  /// capacity and needs no block.
  void clear() noexcept {
    shape_[0] = 0;
    detail::in_order();
    rank_ = 1;
    detail::in_order();
    capacity_bytes_ = 0;
    detail::in_order();
    data_ = detail::relative_word::null;
    detail::in_order();
    rank_ = 0;
    detail::in_order();
  }
  /// Writes the words of an ndarray that has no block, in the opposite order to clear().
  void put(const state& s) noexcept {
    shape_[0] = 0;
    detail::in_order();
    rank_ = 1;
    detail::in_order();
    data_ = detail::relative(&data_, s.data);
    detail::in_order();
    capacity_bytes_ = s.capacity_bytes;
    order_ = s.order;
    std::copy(s.extents.begin() + 1, s.extents.end(), std::begin(shape_) + 1);
    detail::in_order();
    rank_ = s.rank;
    detail::in_order();
    shape_[0] = s.extents[0];
  }
  void steal(ndarray& other) noexcept {
    const state words = other.words();
    other.clear();
    put(words);
  }
  /// Exchanges the contents with an ndarray in the same region. If the process is killed in between, each ndarray has
  /// its old contents, the contents of the other ndarray, or none.
  void exchange(ndarray& other) noexcept {
    const state mine = words();
    const state theirs = other.words();
    clear();
    other.clear();
    other.put(mine);
    put(theirs);
  }
  /// Reshapes an ndarray that lies on the stack and not in a region, so that no other task sees it.
  void reshape_outside(std::span<const size_type> shape, crossdock::order o) {
    if (shape.size() > max_rank) throw error(status::invalid, "an ndarray has at most 8 dimensions");
    std::uint64_t extents[CROSSDOCK_RANK_MAX] = {};  // `shape` may be this ndarray's own shape, which changes below
    std::copy(shape.begin(), shape.end(), std::begin(extents));
    size_type n = 1, bytes = 0;
    for (size_type extent : shape) {
      if (__builtin_mul_overflow(n, extent, &n)) throw error(status::no_space, "no region has room for that many elements");
    }
    if (__builtin_mul_overflow(n, sizeof(T), &bytes)) throw error(status::no_space, "no region has room for that many elements");
    const size_type before = size();
    T* const old = data();
    T* elements = old;
    if (bytes > capacity_bytes_) {
      elements = get_allocator().raw_allocate(n, 64);
      std::copy_n(old, before, elements);
      capacity_bytes_ = bytes;
    }
    if (n > before) std::fill(elements + before, elements + n, T{});
    data_ = detail::relative(&data_, elements);
    if (old && elements != old) get_allocator().raw_deallocate(old);
    rank_ = static_cast<std::uint32_t>(shape.size());
    order_ = static_cast<std::uint32_t>(o);
    std::copy(std::begin(extents), std::end(extents), std::begin(shape_));
  }

  detail::relative_word region_;
  detail::relative_word data_ = detail::relative_word::null;
  std::uint64_t capacity_bytes_ = 0;
  std::uint32_t rank_ = 0;
  std::uint32_t order_ = 0;
  std::uint64_t shape_[CROSSDOCK_RANK_MAX] = {};
  [[maybe_unused]] std::uint8_t reserved_[32] = {};
};

static_assert(sizeof(ndarray<double>) == sizeof(crossdock_ndarray) && std::is_standard_layout_v<ndarray<double>>, "the layout is frozen");

template <class T>
struct shareable<ndarray<T>> : shareable<T> {};
template <class T>
struct type_name<ndarray<T>> {
  static constexpr detail::type_text text = detail::compose({"ndarray<", type_name<T>::value, ">"});
  static constexpr std::string_view value = text.view();
};

}  // namespace crossdock
