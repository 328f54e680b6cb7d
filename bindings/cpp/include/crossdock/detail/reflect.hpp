// Finds the fields of an aggregate. The author of the aggregate need not list them.
//
// Boost.PFR reads aggregates, but it counts a field that is a C array (double x[3], which simulations use all the time)
// as several fields. So the fields are counted here, and PFR's structured bindings are used with that count.
#pragma once

#include <boost/pfr/detail/core17.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace crossdock::detail {

/// A type that converts to any type. Its conversion is never defined; it only serves to test whether an expression
/// would compile.
struct anything {
  template <class T>
  constexpr operator T() const noexcept;
};

template <std::size_t>
using anything_at = anything;

template <class T, std::size_t... I>
consteval bool takes(std::index_sequence<I...>) {
  return requires { T{anything_at<I>{}...}; };
}

/// Tells whether T{a, a, … (before), {a, … (inside)}, a, … (after)} would compile: B is the number of arguments before
/// the inner braces, I the number inside them, and A the number after them.
template <class T, std::size_t... B, std::size_t... I, std::size_t... A>
consteval bool takes_nested(std::index_sequence<B...>, std::index_sequence<I...>, std::index_sequence<A...>) {
  return requires { T{anything_at<B>{}..., {anything_at<I>{}...}, anything_at<A>{}...}; };
}

template <class T, std::size_t N>
inline constexpr bool takes_n = takes<T>(std::make_index_sequence<N>{});

template <class T, std::size_t B, std::size_t I, std::size_t A>
inline constexpr bool takes_b_i_a = takes_nested<T>(std::make_index_sequence<B>{}, std::make_index_sequence<I>{}, std::make_index_sequence<A>{});

// The largest n in [Lo, Hi) for which Check<n> is true. Check<Lo> must be true, and if Check<n> is false, it must be
// false for all larger n.
template <template <std::size_t> class Check, std::size_t Lo, std::size_t Hi>
consteval std::size_t last_true() {
  if constexpr (Hi - Lo <= 1) {
    return Lo;
  } else {
    constexpr std::size_t middle = Lo + (Hi - Lo) / 2;
    if constexpr (Check<middle>::value) {
      return last_true<Check, middle, Hi>();
    } else {
      return last_true<Check, Lo, middle>();
    }
  }
}

template <template <std::size_t> class Check, std::size_t Lo, std::size_t Step = 1>
consteval std::size_t last_true_from() {
  if constexpr (Check<Lo + Step>::value) {
    return last_true_from<Check, Lo + Step, Step * 2>();
  } else {
    return last_true<Check, Lo, Lo + Step>();
  }
}

/// The fewest initialisers that T takes: more than 0 if leading members have no default constructor.
template <class T, std::size_t N = 0>
consteval std::size_t fewest_initialisers() {
  static_assert(N <= sizeof(T), "crossdock: this aggregate's fields cannot be counted; specialise crossdock::type_name for it");
  if constexpr (takes_n<T, N>) {
    return N;
  } else {
    return fewest_initialisers<T, N + 1>();
  }
}

/// The number of initialisers that T takes with braces elided: an array counts once for each element.
template <class T>
struct initialisers {
  template <std::size_t N>
  struct check : std::bool_constant<takes_n<T, N>> {};
  static constexpr std::size_t value = last_true_from<check, fewest_initialisers<T>()>();
};

// Tells whether the field at initialiser I is an array of K elements. T takes n initialisers if an array has no braces
// of its own and counts once for each element. The test puts braces with K initialisers at initialiser I. If the field
// is an array of K elements, the braces replace K of the n initialisers, so exactly n−I−K initialisers fit after the
// braces. If the field is a class that also takes K initialisers in braces, the braces replace one of the n
// initialisers, so n−I−1 initialisers fit after the braces.
template <class T, std::size_t I, std::size_t K>
inline constexpr bool array_of = takes_b_i_a<T, I, K, initialisers<T>::value - I - K> && !takes_b_i_a<T, I, K, initialisers<T>::value - I - K + 1>;

template <class T, std::size_t I>
struct nested {
  template <std::size_t K>
  struct check : std::bool_constant<(I + K <= initialisers<T>::value && takes_b_i_a<T, I, K, 0>)> {};
};

template <class T, std::size_t I, std::size_t K = 2>
consteval std::size_t swallowed_one_by_one() {
  if constexpr (K > 64 || I + K > initialisers<T>::value) {
    return 1;
  } else if constexpr (array_of<T, I, K>) {
    return K;
  } else {
    return swallowed_one_by_one<T, I, K + 1>();
  }
}

/// How many initialisers the field at initialiser I takes: 1, or the number of elements of an array.
template <class T, std::size_t I>
consteval std::size_t swallowed() {
  if constexpr (nested<T, I>::template check<2>::value) {  // the length of a long array is found by halving
    constexpr std::size_t k = last_true_from<nested<T, I>::template check, 2>();
    if constexpr (array_of<T, I, k>) {
      return k;
    } else {
      return swallowed_one_by_one<T, I>();
    }
  } else {  // a later field may have no default constructor, so only the exact number compiles
    return swallowed_one_by_one<T, I>();
  }
}

template <class T, std::size_t I = 0>
consteval std::size_t count_fields() {
  if constexpr (I >= initialisers<T>::value) {
    return 0;
  } else {
    return 1 + count_fields<T, I + swallowed<T, I>()>();
  }
}

template <class T>
inline constexpr std::size_t field_count = count_fields<T>();

/// Returns references to the fields of `x`, in a tuple of the library Boost.PFR.
template <class T>
constexpr auto tie_fields(T& x) noexcept {
  return boost::pfr::detail::tie_as_tuple(x, boost::pfr::detail::size_t_<field_count<std::remove_cv_t<T>>>{});
}

template <class T, std::size_t I>
using field_type = std::remove_reference_t<typename boost::pfr::detail::sequence_tuple::tuple_element<I, decltype(tie_fields(std::declval<T&>()))>::type>;

/// Calls visit(field) for each field, in the order of declaration.
template <class T, class Visit>
constexpr void for_each_field(T& x, Visit&& visit) {
  auto fields = tie_fields(x);
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (visit(boost::pfr::detail::sequence_tuple::get<I>(fields)), ...);
  }(std::make_index_sequence<field_count<std::remove_cv_t<T>>>{});
}

}  // namespace crossdock::detail
