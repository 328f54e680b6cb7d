// The harness of the C++ conformance suite: each row runs in a process of its own, so that one that crashes fails alone.
#pragma once

#include <crossdock/crossdock.hpp>

#include <chrono>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace suite {

using namespace std::chrono_literals;
using crossdock::consumer;
using crossdock::pattern;
using crossdock::producer;
using crossdock::status;

inline constexpr auto wait = 10s;

/// What a row is run as: the test's own process (role ""), or one of its peers.
struct part {
  std::string role{};
  std::string argument{};
};

struct row {
  const char* id;
  const char* claim;
  void (*run)(const part&);
};
const std::vector<row>& region_rows();
const std::vector<row>& error_rows();
const std::vector<row>& port_rows();
const std::vector<row>& item_rows();
const std::vector<row>& series_rows();
const std::vector<row>& file_rows();

struct failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct skipped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// "cpp-4711/r4", and with a letter "cpp-4711/r4b".
std::string name(const std::string& suffix = {});
/// The row's region of 16 MiB, removed when the row ends.
crossdock::region& region();
crossdock::region region(const std::string& suffix, crossdock::mode m, std::uint64_t size = 16 << 20);
/// One end of the row's port, removed when the row ends.
crossdock::port port(crossdock::port_end end, pattern p = pattern::one_to_one, std::uint32_t capacity = 8);

/// Another process of the row: the program started again, with a line-by-line conversation over pipes.
class process {
 public:
  explicit process(const std::string& role, const std::string& argument = {});
  process(const process&) = delete;
  process(process&&) = delete;
  ~process();
  void tell(const std::string& line);
  void expect(const std::string& line);
  /// It ends by itself, with exit status 0.
  void ends_well();
  void is_killed();

 private:
  int end();
  std::string role_;
  int pid_ = -1;
  int to_ = -1;
  int from_ = -1;
};
/// In the peer: the same conversation with the test.
void tell(const std::string& line);
void expect(const std::string& line);
/// SIGKILL for oneself: no destructor, no goodbye.
[[noreturn]] void die();

/// The milliseconds that f took.
double took(const std::function<void()>& f);

template <class A, class B>
void equal(const A& a, const B& b, const char* text, int line) {
  if (!(a == b)) {
    std::ostringstream out;
    out << "line " << line << ": " << text << " is ";
    if constexpr (requires { out << a; }) out << a;
    out << ", not ";
    if constexpr (requires { out << b; }) out << b;
    throw failed(out.str());
  }
}
/// f fails with this status, and a message that says these.
void fails(status wanted, const std::vector<std::string>& says, const std::function<void()>& f, const char* text, int line);

#define CHECK(...) ((__VA_ARGS__) ? (void)0 : throw ::suite::failed("line " + std::to_string(__LINE__) + ": not so: " #__VA_ARGS__))
#define EQUAL(a, b) ::suite::equal((a), (b), #a, __LINE__)
#define SAYS(...) (std::vector<std::string>{__VA_ARGS__})
#define FAILS(wanted, says, ...) ::suite::fails(::crossdock::status::wanted, says, [&] { (void)(__VA_ARGS__); }, #__VA_ARGS__, __LINE__)

}  // namespace suite
