// Constructs objects and passes the region's allocator on to all their parts, at any depth, for example in containers
// of structs of containers (Listing 4 of the Dhmem paper).
#pragma once

#include <crossdock/shareable.hpp>

#include <memory>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

namespace boost::container {
struct try_emplace_t;
}

namespace crossdock::detail {

template <class P>
concept pair_like = requires(P& p) {
  typename P::first_type;
  typename P::second_type;
  p.first;
  p.second;
};

template <class T, class Alloc, class... Args>
void construct_in(const Alloc& allocator, T* place, Args&&... args);

template <class T, class Alloc, class Tuple>
void construct_from_tuple(const Alloc& allocator, T* place, Tuple&& tuple) {
  std::apply([&](auto&&... args) { construct_in(allocator, place, std::forward<decltype(args)>(args)...); }, std::forward<Tuple>(tuple));
}

/// Constructs the two members of a pair in place, so that each member may take the allocator. P is std::pair or the
/// pair type of Boost's trees; both have the same layout and nothing besides the two members.
template <class P, class First, class Second>
void construct_members(P* place, First&& make_first, Second&& make_second) {
  using first_type = std::remove_const_t<typename P::first_type>;
  auto* first = const_cast<first_type*>(std::addressof(place->first));
  make_first(first);
  try {
    make_second(const_cast<std::remove_const_t<typename P::second_type>*>(std::addressof(place->second)));
  } catch (...) {
    std::destroy_at(first);
    throw;
  }
}

template <class P, class Alloc, class... Args>
void construct_pair(const Alloc& allocator, P* place, Args&&... args) {
  if constexpr (sizeof...(Args) == 0) {
    construct_members(place, [&](auto* p) { construct_in(allocator, p); }, [&](auto* p) { construct_in(allocator, p); });
  } else if constexpr (sizeof...(Args) == 1) {
    auto from = [&](auto&& pair) {
      using source = decltype(pair);
      construct_members(
          place, [&](auto* p) { construct_in(allocator, p, std::forward<source>(pair).first); },
          [&](auto* p) { construct_in(allocator, p, std::forward<source>(pair).second); });
    };
    from(std::forward<Args>(args)...);
  } else {
    auto from = [&]<class First, class... Rest>(First&& first, Rest&&... rest) {
      using tag = std::remove_cvref_t<First>;
      if constexpr (std::is_same_v<tag, boost::container::try_emplace_t>) {
        [&]<class Key, class... Mapped>(Key&& key, Mapped&&... mapped) {
          construct_members(
              place, [&](auto* p) { construct_in(allocator, p, std::forward<Key>(key)); },
              [&](auto* p) { construct_in(allocator, p, std::forward<Mapped>(mapped)...); });
        }(std::forward<Rest>(rest)...);
      } else if constexpr (sizeof...(Rest) == 2) {  // the piecewise_construct of std or of Boost, and two tuples
        [&]<class A, class B>(A&& a, B&& b) {
          construct_members(
              place, [&](auto* p) { construct_from_tuple(allocator, p, std::forward<A>(a)); },
              [&](auto* p) { construct_from_tuple(allocator, p, std::forward<B>(b)); });
        }(std::forward<Rest>(rest)...);
      } else {
        static_assert(sizeof...(Rest) == 1, "crossdock: a pair is made of a pair, of two values, or piecewise");
        construct_members(
            place, [&](auto* p) { construct_in(allocator, p, std::forward<First>(first)); },
            [&](auto* p) { construct_in(allocator, p, std::forward<Rest>(rest)...); });
      }
    };
    from(std::forward<Args>(args)...);
  }
}

template <class T>
consteval bool has_allocator_in_it() {
  if constexpr (takes_allocator<T>) {
    return true;
  } else if constexpr (array_like<T>) {
    return has_allocator_in_it<typename element_of<T>::type>();
  } else if constexpr (pair_like<T>) {
    return has_allocator_in_it<typename T::first_type>() || has_allocator_in_it<typename T::second_type>();
  } else if constexpr (std::is_class_v<T> && std::is_aggregate_v<T> && !std::is_empty_v<T>) {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (has_allocator_in_it<field_type<T, I>>() || ...);
    }(std::make_index_sequence<field_count<T>>{});
  } else {
    return false;
  }
}

template <class T, class Alloc>
T make_in(const Alloc& allocator);

/// Stands for one field in the initialisation of an aggregate: it converts to the field's type and makes the field
/// with the allocator. So an aggregate of containers needs no constructor of its own.
template <class Alloc>
struct made_in {
  const Alloc& allocator;
  template <class T>
  operator T() const {
    return make_in<T>(allocator);
  }
};

template <class T, class Alloc>
T make_in(const Alloc& allocator) {
  if constexpr (std::is_constructible_v<T, const Alloc&> && takes_allocator<T>) {
    return T(allocator);
  } else if constexpr (takes_allocator<T>) {
    return T(std::allocator_arg, allocator);
  } else if constexpr (has_allocator_in_it<T>() && std::is_aggregate_v<T>) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      auto field = [&](std::size_t) { return made_in<Alloc>{allocator}; };
      return T{field(I)...};
    }(std::make_index_sequence<initialisers<T>::value>{});
  } else {
    return T();
  }
}

/// Tells whether make_in<T> compiles.
template <class T>
consteval bool can_be_made_in() {
  if constexpr (takes_allocator<T>) {
    return std::is_constructible_v<T, const allocator<void>&> || std::is_constructible_v<T, std::allocator_arg_t, const allocator<void>&>;
  } else if constexpr (array_like<T>) {
    return can_be_made_in<typename element_of<T>::type>();
  } else if constexpr (has_allocator_in_it<T>() && std::is_aggregate_v<T>) {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (can_be_made_in<field_type<T, I>>() && ...);
    }(std::make_index_sequence<field_count<T>>{});
  } else {
    return std::is_default_constructible_v<T>;
  }
}

/// Tells whether a T is copied or moved from `Given` by an assignment to an empty T. The constructor would take no
/// allocator, so the containers in the new T would lie in the region of the original.
template <class T, class Given>
concept copied_by_assignment = std::is_same_v<std::remove_cvref_t<Given>, T> && std::is_assignable_v<T&, Given> && has_allocator_in_it<T>() && can_be_made_in<T>();

/// Constructs a T at `place`. Each part of the object that takes an allocator gets `allocator`, as the first argument
/// behind std::allocator_arg or as the last argument. Pairs and aggregates pass `allocator` on to their members.
template <class T, class Alloc, class... Args>
void construct_in(const Alloc& allocator, T* place, Args&&... args) {
  void* raw = const_cast<void*>(static_cast<const volatile void*>(place));
  if constexpr (pair_like<T>) {
    construct_pair(allocator, place, std::forward<Args>(args)...);
  } else if constexpr (takes_allocator<T> && std::is_constructible_v<T, std::allocator_arg_t, const Alloc&, Args...>) {
    ::new (raw) T(std::allocator_arg, allocator, std::forward<Args>(args)...);
  } else if constexpr (takes_allocator<T> && std::is_constructible_v<T, Args..., const Alloc&>) {
    ::new (raw) T(std::forward<Args>(args)..., allocator);
  } else if constexpr (sizeof...(Args) == 0 && std::is_aggregate_v<T> && !std::is_array_v<T> && has_allocator_in_it<T>()) {
    ::new (raw) T(make_in<T>(allocator));
  } else if constexpr (sizeof...(Args) == 1 && (copied_by_assignment<T, Args> && ...)) {
    T* const made = ::new (raw) T(make_in<T>(allocator));
    try {
      ((*made = std::forward<Args>(args)), ...);
    } catch (...) {
      std::destroy_at(made);
      throw;
    }
  } else if constexpr (std::is_constructible_v<T, Args...>) {
    ::new (raw) T(std::forward<Args>(args)...);
  } else {
    static_assert(requires { T{std::forward<Args>(args)...}; }, "crossdock: this type cannot be constructed from these arguments and an allocator");
    ::new (raw) T{std::forward<Args>(args)...};
  }
}

}  // namespace crossdock::detail
