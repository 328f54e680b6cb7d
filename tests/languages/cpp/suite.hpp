// The harness of the C++ conformance suite, which has one test for each row of ../conformance.md. Each test runs in a
// process of its own, so that a crash makes only this test fail.
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

/// The role in which a process runs a test: as the test's first process (role ""), or as one of its peers.
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

/// Makes a name for an object of the running test: "cpp-4711/r4", or with a letter "cpp-4711/r4b".
std::string name(const std::string& suffix = {});
/// Opens a region of 16 MiB for the running test. The region is removed when the test ends.
crossdock::region& region();
crossdock::region region(const std::string& suffix, crossdock::mode m, std::uint64_t size = 16 << 20);
/// Opens one end of the running test's port. The port is removed when the test ends.
crossdock::port port(crossdock::port_end end, pattern p = pattern::one_to_one, std::uint32_t capacity = 8);
/// Opens one end of the port name(suffix). A process opens a port through a region on its own node. The test's first
/// process uses the region of the test. Its peers use another region, because they may run on another node.
crossdock::port port_named(const std::string& suffix, crossdock::port_end end, const crossdock::port_options& options = {});

/// Another process of the running test: this program, started again. The two processes exchange lines through pipes.
class process {
 public:
  explicit process(const std::string& role, const std::string& argument = {});
  process(const process&) = delete;
  process(process&&) = delete;
  ~process();
  void tell(const std::string& line);
  void expect(const std::string& line);
  /// Checks that the process ends by itself, with exit status 0.
  void ends_well();
  void is_killed();

 private:
  int end();
  std::string role_;
  int pid_ = -1;
  int to_ = -1;
  int from_ = -1;
};
/// In the peer: sends a line to the test's first process.
void tell(const std::string& line);
void expect(const std::string& line);
/// Kills this process with SIGKILL, so that no destructor runs and no session is closed.
[[noreturn]] void die();

/// Returns how many milliseconds f took.
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
/// Checks that f fails with this status, and that the error's message contains these texts.
void fails(status wanted, const std::vector<std::string>& says, const std::function<void()>& f, const char* text, int line);

#define CHECK(...) ((__VA_ARGS__) ? (void)0 : throw ::suite::failed("line " + std::to_string(__LINE__) + ": not so: " #__VA_ARGS__))
#define EQUAL(a, b) ::suite::equal((a), (b), #a, __LINE__)
#define SAYS(...) (std::vector<std::string>{__VA_ARGS__})
#define FAILS(wanted, says, ...) ::suite::fails(::crossdock::status::wanted, says, [&] { (void)(__VA_ARGS__); }, #__VA_ARGS__, __LINE__)

}  // namespace suite
