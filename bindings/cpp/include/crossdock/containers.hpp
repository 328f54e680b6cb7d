// The containers besides vector, string and ndarray: Boost's, with crossdock's allocator and offset_ptr. Only C++ tasks
// can read these containers. All tasks that share such a container must be built with the same Boost release, which
// is part of the type's name.
#pragma once

#include <crossdock/allocator.hpp>
#include <crossdock/string.hpp>
#include <crossdock/type_name.hpp>

#include <boost/container/deque.hpp>
#include <boost/container/list.hpp>
#include <boost/container/map.hpp>
#include <boost/container/set.hpp>
#include <boost/unordered_map.hpp>
#include <boost/unordered_set.hpp>
#include <boost/version.hpp>

#include <cstddef>
#include <functional>
#include <type_traits>
#include <utility>

namespace crossdock {

namespace detail {

/// String keys are compared and hashed as text, so that a look-up of "name" makes no string.
template <class K>
using default_less = std::conditional_t<std::is_same_v<K, string>, std::less<>, std::less<K>>;
/// The hash of a number is the number itself. A hash must be the same in every process, and std::hash may differ
/// between standard libraries.
struct number_hash {
  template <class N>
  std::size_t operator()(N n) const noexcept {
    return static_cast<std::size_t>(n);
  }
};
template <class K>
using default_hash = std::conditional_t<std::is_same_v<K, string>, text_hash, std::conditional_t<std::is_integral_v<K> || std::is_enum_v<K>, number_hash, std::hash<K>>>;
template <class K>
using default_equal = std::conditional_t<std::is_same_v<K, string>, std::equal_to<>, std::equal_to<K>>;

/// A type, such as std::string_view, that a caller may give in place of a key of type crossdock::string.
template <class Given, class Key>
concept text_for = std::is_same_v<Key, string> && std::is_convertible_v<const Given&, std::string_view> && !std::is_same_v<std::remove_cvref_t<Given>, string>;

}  // namespace detail

template <class T>
using list = boost::container::list<T, allocator<T>>;
template <class T>
using deque = boost::container::deque<T, allocator<T>>;
template <class K, class Compare = detail::default_less<K>>
using set = boost::container::set<K, Compare, allocator<K>>;
template <class K, class Compare = detail::default_less<K>>
using multiset = boost::container::multiset<K, Compare, allocator<K>>;
template <class K, class V, class Compare = detail::default_less<K>>
using multimap = boost::container::multimap<K, V, Compare, allocator<std::pair<const K, V>>>;
template <class K, class Hash = detail::default_hash<K>, class Equal = detail::default_equal<K>>
using unordered_set = boost::unordered_set<K, Hash, Equal, allocator<K>>;

/// boost::container::map, whose [] and at also take a std::string_view if the key is a string.
template <class K, class V, class Compare = detail::default_less<K>>
class map : public boost::container::map<K, V, Compare, allocator<std::pair<const K, V>>> {
  using base = boost::container::map<K, V, Compare, allocator<std::pair<const K, V>>>;

 public:
  using base::base;
  using base::operator[];
  using base::at;
  map(const map&) = default;
  map(map&&) = default;
  map(const map& other, const typename base::allocator_type& a) : base(static_cast<const base&>(other), a) {}
  map(map&& other, const typename base::allocator_type& a) : base(static_cast<base&&>(other), a) {}
  map& operator=(const map&) = default;
  map& operator=(map&&) = default;

  template <detail::text_for<K> Text>
  V& operator[](const Text& key) {
    const auto it = this->find(std::string_view(key));
    return it != this->end() ? it->second : base::operator[](K(std::string_view(key), this->get_allocator()));
  }
  template <detail::text_for<K> Text>
  V& at(const Text& key) {
    const auto it = this->find(std::string_view(key));
    if (it == this->end()) throw std::out_of_range("crossdock::map: no such key");
    return it->second;
  }
};

/// boost::unordered_map, whose [] and at also take a std::string_view if the key is a string.
template <class K, class V, class Hash = detail::default_hash<K>, class Equal = detail::default_equal<K>>
class unordered_map : public boost::unordered_map<K, V, Hash, Equal, allocator<std::pair<const K, V>>> {
  using base = boost::unordered_map<K, V, Hash, Equal, allocator<std::pair<const K, V>>>;

 public:
  using base::base;
  using base::operator[];
  using base::at;
  unordered_map(const unordered_map&) = default;
  unordered_map(unordered_map&&) = default;
  unordered_map(const unordered_map& other, const typename base::allocator_type& a) : base(static_cast<const base&>(other), a) {}
  unordered_map(unordered_map&& other, const typename base::allocator_type& a) : base(static_cast<base&&>(other), a) {}
  unordered_map& operator=(const unordered_map&) = default;
  unordered_map& operator=(unordered_map&&) = default;

  template <detail::text_for<K> Text>
  V& operator[](const Text& key) {
    const auto it = this->find(std::string_view(key));
    return it != this->end() ? it->second : base::operator[](K(std::string_view(key), this->get_allocator()));
  }
  template <detail::text_for<K> Text>
  V& at(const Text& key) {
    const auto it = this->find(std::string_view(key));
    if (it == this->end()) throw std::out_of_range("crossdock::unordered_map: no such key");
    return it->second;
  }
};

namespace detail {

/// A text that can be a template argument.
template <std::size_t N>
struct literal {
  char text[N]{};
  consteval literal(const char (&t)[N]) { std::copy_n(t, N, text); }
};

/// Makes a name such as "cpp:map/1.81<K,V>". It contains the release of Boost, because another release may lay out its
/// nodes differently.
template <literal Name, class... Elements>
consteval type_text describe_boost() {
  type_text release;
  release.add('/');
  release.add(std::size_t{BOOST_VERSION / 100000});
  release.add('.');
  release.add(std::size_t{BOOST_VERSION / 100 % 1000});
  type_text elements;
  auto bare = [](std::string_view name) { return is_opaque(name) ? name.substr(opaque_mark.size()) : name; };
  ((elements.add(elements.length == 0 ? "<" : ","), elements.add(bare(type_name<Elements>::value))), ...);
  elements.add('>');
  return compose({opaque_mark, Name.text, release.view(), elements.finished().view()});
}

template <literal Name, class... Elements>
struct boost_name {
  static constexpr type_text text = describe_boost<Name, Elements...>();
  static constexpr std::string_view value = text.view();
};

template <class... Elements>
struct all_shareable : std::bool_constant<(is_shareable<Elements> && ...)> {};

}  // namespace detail

template <class T>
struct type_name<list<T>> : detail::boost_name<"list", T> {};
template <class T>
struct type_name<deque<T>> : detail::boost_name<"deque", T> {};
template <class K, class C>
struct type_name<set<K, C>> : detail::boost_name<"set", K> {};
template <class K, class C>
struct type_name<multiset<K, C>> : detail::boost_name<"multiset", K> {};
template <class K, class V, class C>
struct type_name<map<K, V, C>> : detail::boost_name<"map", K, V> {};
template <class K, class V, class C>
struct type_name<multimap<K, V, C>> : detail::boost_name<"multimap", K, V> {};
template <class K, class H, class E>
struct type_name<unordered_set<K, H, E>> : detail::boost_name<"unordered_set", K> {};
template <class K, class V, class H, class E>
struct type_name<unordered_map<K, V, H, E>> : detail::boost_name<"unordered_map", K, V> {};

template <class T>
struct shareable<list<T>> : detail::all_shareable<T> {};
template <class T>
struct shareable<deque<T>> : detail::all_shareable<T> {};
template <class K, class C>
struct shareable<set<K, C>> : detail::all_shareable<K> {};
template <class K, class C>
struct shareable<multiset<K, C>> : detail::all_shareable<K> {};
template <class K, class V, class C>
struct shareable<map<K, V, C>> : detail::all_shareable<K, V> {};
template <class K, class V, class C>
struct shareable<multimap<K, V, C>> : detail::all_shareable<K, V> {};
template <class K, class H, class E>
struct shareable<unordered_set<K, H, E>> : detail::all_shareable<K> {};
template <class K, class V, class H, class E>
struct shareable<unordered_map<K, V, H, E>> : detail::all_shareable<K, V> {};

}  // namespace crossdock
