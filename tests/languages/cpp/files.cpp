// Tests rows F1 to F9 of the table in ../conformance.md: files of managed directories.
#include "suite.hpp"

#include <crossdock/files.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace suite {
namespace {

constexpr std::size_t size = 100'000;

std::string place(const std::string& row, const std::string& side, const std::string& name) {
  const char* root = std::getenv("CROSSDOCK_CONFORMANCE_FILES");
  if (!root) throw failed("CROSSDOCK_CONFORMANCE_FILES is not set; tests/languages/run sets it");
  return std::string(root) + "/" + row + "/" + side + "/" + name;
}

void put(std::ofstream& file, char byte, std::size_t bytes) {
  file << std::string(bytes, byte) << std::flush;
  CHECK(file.good());
}

void write(const std::string& row, const std::string& name, char byte = 'x') {
  std::ofstream file(place(row, "stage", name), std::ios::binary);
  put(file, byte, size);
}

void holds(std::istream& file, char byte = 'x') {
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  EQUAL(bytes.size(), size);
  CHECK(std::ranges::all_of(bytes, [&](char c) { return c == byte; }));
}

void comes(const std::string& row, const std::string& name, char byte = 'x') {
  crossdock::ifstream file(place(row, "published", name), std::ios::binary);
  CHECK(file.is_open());
  holds(file, byte);
}

bool is_seen(const std::string& row, const std::string& name) { return std::filesystem::exists(place(row, "published", name)); }

/// Process B writes the file, and process A opens it.
crossdock::ifstream opened(const std::string& row, const std::string& name) {
  process("writes", name).ends_well();
  return crossdock::ifstream(place(row, "published", name), std::ios::binary);
}

void comes_later(const part& p) {
  if (!p.role.empty()) {
    std::this_thread::sleep_for(200ms);
    return write("f1", "coming");
  }
  process b("later");
  comes("f1", "coming");
  b.ends_well();
  CHECK(took([] { crossdock::await_file("/nonexistent/file"); }) < 2000);
}

void names_producer(const part&) {
  const double ms = took([] { FAILS(timed_out, SAYS("f2/published/never", "simulate"), crossdock::await_file(place("f2", "published", "never"))); });
  CHECK(ms >= 300 && ms <= 5000);
}

void dead_producer(const part& p) {
  if (!p.role.empty()) {
    std::filesystem::create_symlink(std::to_string(::getpid()), place("f3", "stage", ".producer"));
    std::ofstream file(place("f3", "stage", "half"), std::ios::binary);
    put(file, 'x', size / 2);
    std::this_thread::sleep_for(200ms);
    die();
  }
  process b("dies");
  FAILS(not_found, SAYS("half", "simulate failed", "killed"), crossdock::ifstream(place("f3", "published", "half")));
  CHECK(!is_seen("f3", "half"));
  b.is_killed();
}

void written_again(const part& p) {
  if (p.role == "again") {
    write("f4", "next", 'y');
    std::filesystem::rename(place("f4", "stage", "next"), place("f4", "stage", "name"));
    return write("f4", "after");
  }
  if (!p.role.empty()) return write("f4", p.argument);
  auto held = opened("f4", "name");
  process("again").ends_well();
  comes("f4", "after");
  comes("f4", "name", 'y');
  holds(held);
}

void never_part(const part& p) {
  if (!p.role.empty()) {
    std::ofstream file(place("f5", "stage", "slow"), std::ios::binary);
    put(file, 'x', size / 2);
    tell("half");
    expect("go on");
    return put(file, 'x', size / 2);
  }
  process b("slowly");
  b.expect("half");
  CHECK(!is_seen("f5", "slow"));
  b.tell("go on");
  comes("f5", "slow");
  b.ends_well();
}

void directories(const part& p) {
  if (!p.role.empty()) {
    std::filesystem::create_directories(place("f6", "stage", "a/b"));
    return write("f6", "a/b/c");
  }
  process("folder").ends_well();
  comes("f6", "a/b/c");
}

void removal(const part& p) {
  if (p.role == "remove") {
    std::filesystem::remove(place("f7", "stage", "gone"));
    return write("f7", "after");
  }
  if (!p.role.empty()) return write("f7", p.argument);
  auto held = opened("f7", "gone");
  process("remove").ends_well();
  comes("f7", "after");
  CHECK(!is_seen("f7", "gone"));
  holds(held);
}

void quota(const part& p) {
  if (!p.role.empty()) {
    {
      std::ofstream big(place("f8", "stage", "big"), std::ios::binary);
      big << std::string(2'000'000, 'x') << std::flush;
      CHECK(big.bad());
    }
    std::filesystem::remove(place("f8", "stage", "big"));
    for (int n = 0; n < 1000 && std::filesystem::space(place("f8", "stage", "")).available < 200'000; n++) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return write("f8", "small");
  }
  process("full").ends_well();
  comes("f8", "small");
  CHECK(!is_seen("f8", "big"));
}

void retention(const part& p) {
  if (!p.role.empty()) return write("f9", p.argument);
  for (const char* name : {"1", "2", "3"}) opened("f9", name);
  CHECK(!is_seen("f9", "1"));
  comes("f9", "2");
}

}  // namespace

const std::vector<row>& file_rows() {
  static const std::vector<row> rows = {
      {"F1", "a file that comes", comes_later},
      {"F2", "deadline names the producer", names_producer},
      {"F3", "dead producer", dead_producer},
      {"F4", "published name written again", written_again},
      {"F5", "never part of a file", never_part},
      {"F6", "directories", directories},
      {"F7", "removal", removal},
      {"F8", "quota", quota},
      {"F9", "retention", retention},
  };
  return rows;
}

}  // namespace suite
