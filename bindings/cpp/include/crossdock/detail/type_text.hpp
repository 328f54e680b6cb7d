// Type names put together at compile time.
#pragma once

#include <crossdock.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace crossdock::detail {

inline constexpr std::string_view opaque_mark = "cpp:";

constexpr bool is_opaque(std::string_view name) { return name.starts_with(opaque_mark); }

/// A type name of at most 191 bytes. A longer name is cut and ends in a hash of the whole name, so that different
/// types keep different names.
struct type_text {
  std::array<char, CROSSDOCK_TYPE_NAME_MAX + 1> bytes{};
  std::size_t length = 0;
  std::uint64_t hash = UINT64_C(0xcbf29ce484222325);  // FNV-1a of everything that was added
  bool too_long = false;

  constexpr void add(char c) {
    hash = (hash ^ static_cast<unsigned char>(c)) * UINT64_C(0x100000001b3);
    if (length < CROSSDOCK_TYPE_NAME_MAX) {
      bytes[length++] = c;
    } else {
      too_long = true;
    }
  }
  constexpr void add(std::string_view text) {
    for (char c : text) add(c);
  }
  constexpr void add(std::size_t number) {
    if (number >= 10) add(number / 10);
    add(static_cast<char>('0' + number % 10));
  }
  /// Must be called last. If the name was cut, it appends the hash of the whole name.
  constexpr type_text finished() const {
    type_text text = *this;
    constexpr std::string_view digits = "0123456789abcdef";
    if (too_long) text.bytes[length - 17] = '#';
    for (std::size_t i = 0; too_long && i < 16; ++i) text.bytes[length - 16 + i] = digits[(hash >> (60 - 4 * i)) & 15];
    return text;
  }
  constexpr std::string_view view() const { return {bytes.data(), length}; }
};

/// Joins the pieces of a type name. If one piece is known to C++ only, the whole type is known to C++ only. (The
/// function is constexpr and not consteval, because clang 14 refuses consteval here with a false error about an
/// address.)
constexpr type_text compose(std::initializer_list<std::string_view> pieces) {
  bool opaque = false;
  std::size_t length = 0;
  for (auto piece : pieces) {
    opaque |= is_opaque(piece);
    length += piece.size();
  }
  opaque |= length > CROSSDOCK_TYPE_NAME_MAX;
  type_text text;
  if (opaque) text.add(opaque_mark);
  for (auto piece : pieces) text.add(is_opaque(piece) ? piece.substr(opaque_mark.size()) : piece);
  return text.finished();
}

/// The name of T as the compiler writes it. If T is a local class, the name of its function is removed, because tasks
/// define the same struct in different functions.
template <class T>
consteval std::string_view spelling() {
  std::string_view text = __PRETTY_FUNCTION__;
  // The text of g++ is "… spelling() [with T = X; std::string_view = …]", that of clang++ is "… spelling() [T = X]".
  text.remove_prefix(text.find("T = ") + 4);
  int depth = 0;
  std::size_t end = 0;
  std::size_t begin = 0;
  for (; end < text.size(); ++end) {
    const char c = text[end];
    if (c == '<' || c == '(' || c == '{' || c == '[') ++depth;
    if (depth == 0 && (c == ';' || c == ']')) break;
    if (c == '>' || c == ')' || c == '}' || c == ']') --depth;
    const bool function = c == ')' || c == '}' || (c == '>' && text.substr(begin).starts_with("<lambda"));
    const bool behind_function = function && depth == 0 && text.substr(end + 1).starts_with("::");
    if (behind_function) begin = end + 3;
  }
  return text.substr(begin, end - begin);
}

/// Makes the name "cpp:Name", without the blanks that differ between compilers.
template <class T>
consteval type_text describe_opaque() {
  constexpr std::string_view text = spelling<T>();
  type_text name;
  name.add(opaque_mark);
  auto in_word = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool between_words = i > 0 && i + 1 < text.size() && in_word(text[i - 1]) && in_word(text[i + 1]);
    if (text[i] != ' ' || between_words) name.add(text[i]);
  }
  return name.finished();
}

}  // namespace crossdock::detail
