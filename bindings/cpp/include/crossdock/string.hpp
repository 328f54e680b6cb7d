// std::string in shared memory: a vector of bytes without a final zero. The layout is the same in every language.
#pragma once

#include <crossdock/vector.hpp>

#include <compare>
#include <functional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace crossdock {

/// A string of 32 bytes, with the layout of vector<char>. It converts to std::string_view.
class string {
 public:
  using value_type = char;
  using allocator_type = allocator<char>;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using iterator = char*;
  using const_iterator = const char*;
  using reference = char&;
  using const_reference = const char&;
  static constexpr size_type npos = std::string_view::npos;

  string(const allocator_type& a) noexcept : bytes_(a) {}  // NOLINT: implicit
  string(std::string_view text, const allocator_type& a) : bytes_(text, a) {}
  string(const char* text, const allocator_type& a) : string(std::string_view(text), a) {}
  string(const string& other) = default;
  string(const string& other, const allocator_type& a) : bytes_(other.bytes_, a) {}
  string(string&& other) noexcept = default;
  string(string&& other, const allocator_type& a) : bytes_(std::move(other.bytes_), a) {}
  ~string() = default;

  string& operator=(const string& other) = default;
  string& operator=(string&& other) = default;
  string& operator=(std::string_view text) { return assign(text); }
  string& operator=(const char* text) { return assign(text); }
  /// If there is no room for the text, the string is as it was.
  string& assign(std::string_view text) {
    if (inside(text)) return assign(std::string(text));
    bytes_.assign(text);
    return *this;
  }

  operator std::string_view() const noexcept { return {data(), size()}; }
  std::string_view view() const noexcept { return *this; }
  /// Returns a copy of the text in ordinary memory.
  std::string str() const { return std::string(view()); }

  allocator_type get_allocator() const noexcept { return bytes_.get_allocator(); }
  size_type size() const noexcept { return bytes_.size(); }
  size_type length() const noexcept { return size(); }
  size_type capacity() const noexcept { return bytes_.capacity(); }
  bool empty() const noexcept { return bytes_.empty(); }
  char* data() noexcept { return bytes_.data(); }
  const char* data() const noexcept { return bytes_.data(); }
  char& operator[](size_type i) noexcept { return bytes_[i]; }
  const char& operator[](size_type i) const noexcept { return bytes_[i]; }
  char& at(size_type i) { return bytes_.at(i); }
  const char& at(size_type i) const { return bytes_.at(i); }
  char& front() noexcept { return bytes_.front(); }
  char& back() noexcept { return bytes_.back(); }
  iterator begin() noexcept { return bytes_.begin(); }
  iterator end() noexcept { return bytes_.end(); }
  const_iterator begin() const noexcept { return bytes_.begin(); }
  const_iterator end() const noexcept { return bytes_.end(); }

  void reserve(size_type n) { bytes_.reserve(n); }
  void shrink_to_fit() { bytes_.shrink_to_fit(); }
  void resize(size_type n, char fill = '\0') { bytes_.resize(n, fill); }
  void clear() noexcept { bytes_.clear(); }
  void push_back(char c) { bytes_.push_back(c); }
  void pop_back() noexcept { bytes_.pop_back(); }
  string& append(std::string_view text) {
    if (inside(text)) return append(std::string(text));
    bytes_.append(text);
    return *this;
  }
  string& operator+=(std::string_view text) { return append(text); }
  string& operator+=(char c) { return (push_back(c), *this); }
  string& erase(size_type from = 0, size_type n = npos) {
    if (from > size()) throw std::out_of_range("crossdock::string::erase");
    const size_type to = n > size() - from ? size() : from + n;
    bytes_.erase(bytes_.begin() + from, bytes_.begin() + to);
    return *this;
  }
  size_type find(std::string_view what, size_type from = 0) const noexcept { return view().find(what, from); }
  std::string_view substr(size_type from = 0, size_type n = npos) const { return view().substr(from, n); }
  bool starts_with(std::string_view what) const noexcept { return view().starts_with(what); }
  bool ends_with(std::string_view what) const noexcept { return view().ends_with(what); }
  /// Works as vector::swap.
  void swap(string& other) { bytes_.swap(other.bytes_); }
  friend void swap(string& a, string& b) { a.swap(b); }

  friend bool operator==(const string& a, const string& b) noexcept { return a.view() == b.view(); }
  friend bool operator==(const string& a, std::string_view b) noexcept { return a.view() == b; }
  friend bool operator==(const string& a, const char* b) noexcept { return a.view() == b; }
  friend auto operator<=>(const string& a, const string& b) noexcept { return a.view() <=> b.view(); }
  friend auto operator<=>(const string& a, std::string_view b) noexcept { return a.view() <=> b; }
  friend auto operator<=>(const string& a, const char* b) noexcept { return a.view() <=> std::string_view(b); }
  friend std::ostream& operator<<(std::ostream& out, const string& s) { return out << s.view(); }

  void check_in(crossdock_region* region) const { bytes_.check_in(region); }
  void relocate_to(string* to) const noexcept { bytes_.relocate_to(&to->bytes_); }

 private:
  /// Tells whether `text` is a part of this string, so that growing would invalidate it.
  bool inside(std::string_view text) const noexcept {
    return !text.empty() && std::less_equal<>{}(data(), text.data()) && std::less<>{}(text.data(), data() + size());
  }

  vector<char> bytes_;
};

static_assert(sizeof(string) == sizeof(crossdock_string) && std::is_standard_layout_v<string>, "the layout is frozen");

/// Hashes text by its bytes, so that a std::string_view finds a key that is a crossdock::string.
struct text_hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept {
    // The hash FNV-1a has the same value with every process, compiler and standard library. The C++ standard does not
    // promise this for std::hash.
    std::uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * UINT64_C(0x100000001b3);
    return static_cast<std::size_t>(h ^ (h >> 32));
  }
};

template <>
struct shareable<string> : std::true_type {};
template <>
struct type_name<string> {
  static constexpr std::string_view value = "string";
};

}  // namespace crossdock

template <>
struct std::hash<crossdock::string> : crossdock::text_hash {};
