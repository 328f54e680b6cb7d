#include "suite.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <thread>

namespace suite {

namespace {

std::string row_id;
std::string prefix;
bool is_peer = false;
/// The suffix of the name of the region through which peers open ports.
constexpr const char* peers = "-peers";
std::optional<crossdock::region> shared_region;
std::optional<crossdock::region> ports_region;

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

void write_line(int to, const std::string& line) {
  const std::string text = line + "\n";
  if (::write(to, text.data(), text.size()) != static_cast<ssize_t>(text.size())) throw failed("the other process is gone, and was to be told '" + line + "'");
}

std::string read_line(int from, const std::string& wanted) {
  std::string line;
  const auto deadline = std::chrono::steady_clock::now() + wait;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd ready = {from, POLLIN, 0};
    if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) == 0) throw failed("nothing came within 10 s, instead of '" + wanted + "'");
    char c = 0;
    if (::read(from, &c, 1) <= 0) throw failed("the other process ended, instead of saying '" + wanted + "'");
    if (c == '\n') return line;
    line += c;
  }
}

void hear(int from, const std::string& wanted) {
  if (const std::string line = read_line(from, wanted); line != wanted) throw failed("the other process said '" + line + "' instead of '" + wanted + "'");
}

void clean_up() {
  shared_region.reset();
  ports_region.reset();
  for (const char* suffix : {"", "b", "c", peers}) {
    try {
      crossdock::remove_region(name(suffix));
    } catch (const crossdock::error&) {
    }
    try {
      crossdock::remove_port(name(suffix));
    } catch (const crossdock::error&) {
    }
  }
}

/// Runs the test of the row in this process. The exit status is 0 for ok, 1 for failed and 2 for skipped; the reason
/// goes to standard error.
int run_here(const row& r, const part& p) {
  row_id = r.id;
  ::setenv("CROSSDOCK_TASK", is_peer ? "peer" : "test", 1);
  int code = 0;
  try {
    r.run(p);
  } catch (const skipped& e) {
    std::cerr << e.what();
    code = 2;
  } catch (const std::exception& e) {
    std::cerr << (is_peer ? "peer " + p.role + ": " : "") << e.what() << (is_peer ? "; " : "");
    code = 1;
  }
  if (!is_peer) clean_up();
  return code;
}

/// Runs the test of the row in a child process, which connects on its own. This process never connects.
int run_apart(const row& r) {
  std::array<int, 2> said{};
  if (::pipe2(said.data(), O_CLOEXEC) != 0) std::abort();
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(said[1], 2);
    std::exit(run_here(r, {}));
  }
  ::close(said[1]);
  std::string why;
  std::array<char, 512> buffer{};
  for (ssize_t n; (n = ::read(said[0], buffer.data(), buffer.size())) > 0;) why.append(buffer.data(), static_cast<std::size_t>(n));
  ::close(said[0]);
  int result = 0;
  ::waitpid(child, &result, 0);
  const int code = WIFEXITED(result) ? WEXITSTATUS(result) : 128 + WTERMSIG(result);
  if (code > 2) why += "ended with " + std::to_string(code);
  std::cout << (code == 0 ? "ok " : code == 2 ? "skip " : "FAILED ") << r.id << ' ' << r.claim << (code == 0 ? "" : ": " + why) << std::endl;
  return code;
}

}  // namespace

std::string name(const std::string& suffix) { return prefix + "/" + lower(row_id) + suffix; }

crossdock::region& region() {
  if (!shared_region) shared_region = region("", crossdock::open_or_create);
  return *shared_region;
}
crossdock::region region(const std::string& suffix, crossdock::mode m, std::uint64_t size) { return crossdock::region(m, name(suffix), size); }
crossdock::port port(crossdock::port_end end, pattern p, std::uint32_t capacity) { return port_named("", end, {p, capacity}); }
crossdock::port port_named(const std::string& suffix, crossdock::port_end end, const crossdock::port_options& options) {
  if (!is_peer) return region().port(name(suffix), end, options);
  if (!ports_region) ports_region = region(peers, crossdock::open_or_create);
  return ports_region->port(name(suffix), end, options);
}

process::process(const std::string& role, const std::string& argument) : role_(role) {
  std::array<int, 2> to{};
  std::array<int, 2> from{};
  if (::pipe2(to.data(), O_CLOEXEC) != 0 || ::pipe2(from.data(), O_CLOEXEC) != 0) throw failed("no pipe");
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(to[0], 0);
    ::dup2(from[1], 1);
    // If the suite runs across nodes, the other process of the test connects to the daemon of another node.
    if (const char* socket = std::getenv("CROSSDOCK_PEER_SOCKET")) ::setenv("CROSSDOCK_SOCKET", socket, 1);
    ::execl("/proc/self/exe", "conformance", "--peer", row_id.c_str(), role.c_str(), prefix.c_str(), argument.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(to[0]);
  ::close(from[1]);
  to_ = to[1];
  from_ = from[0];
}
process::~process() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(to_);
  ::close(from_);
}
void process::tell(const std::string& line) { write_line(to_, line); }
void process::expect(const std::string& line) { hear(from_, line); }
int process::end() {
  const auto deadline = std::chrono::steady_clock::now() + wait;
  int result = 0;
  while (::waitpid(pid_, &result, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) throw failed("peer " + role_ + " does not end");
    std::this_thread::sleep_for(1ms);
  }
  pid_ = -1;
  return result;
}
void process::ends_well() {
  if (const int result = end(); result != 0) throw failed("peer " + role_ + " did not end well");
}
void process::is_killed() {
  if (const int result = end(); !WIFSIGNALED(result) || WTERMSIG(result) != SIGKILL) throw failed("peer " + role_ + " was to be killed");
}
void tell(const std::string& line) { write_line(1, line); }
void expect(const std::string& line) { hear(0, line); }
void die() {
  ::raise(SIGKILL);
  std::abort();
}

double took(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

void fails(status wanted, const std::vector<std::string>& says, const std::function<void()>& f, const char* text, int line) {
  const std::string where = "line " + std::to_string(line) + ": " + text;
  try {
    f();
  } catch (const crossdock::error& e) {
    const std::string message = e.what();
    if (e.status() != wanted) throw failed(where + " gave " + std::string(crossdock::name(e.status())) + " (" + message + "), not " + std::string(crossdock::name(wanted)));
    for (const auto& piece : says) {
      if (message.find(piece) == std::string::npos) throw failed(where + ": '" + message + "' does not say '" + piece + "'");
    }
    if (message.empty()) throw failed(where + " failed without a message");
    return;
  }
  throw failed(where + " succeeded, instead of " + std::string(crossdock::name(wanted)));
}

int run(int argc, char** argv) {
  std::vector<row> rows;
  for (const auto* group : {&region_rows(), &error_rows(), &port_rows(), &item_rows(), &series_rows(), &file_rows()}) rows.insert(rows.end(), group->begin(), group->end());
  const auto find = [&](const std::string& id) { return std::ranges::find_if(rows, [&](const row& r) { return r.id == id; }); };

  if (argc == 6 && std::strcmp(argv[1], "--peer") == 0) {
    is_peer = true;
    prefix = argv[4];
    return run_here(*find(argv[2]), {argv[3], argv[5]});
  }
  prefix = "cpp-" + std::to_string(::getpid());
  int passed = 0;
  int failures = 0;
  int skips = 0;
  for (const row& r : rows) {
    if (argc > 1 && r.id != std::string(argv[1])) continue;
    const int code = run_apart(r);
    ++(code == 0 ? passed : code == 2 ? skips : failures);
  }
  std::cout << passed << " passed, " << failures << " failed" << (skips ? ", " + std::to_string(skips) + " skipped" : "") << "\n";
  return failures == 0 && passed > 0 ? 0 : 1;
}

}  // namespace suite

int main(int argc, char** argv) { return suite::run(argc, argv); }
