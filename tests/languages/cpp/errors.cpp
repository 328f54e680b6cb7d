// Tests rows E1 to E4 of the table in ../conformance.md: errors.
#include "suite.hpp"

namespace suite {
namespace {

struct misnamed {
  int x;
};

}  // namespace
}  // namespace suite

template <>
struct crossdock::type_name<suite::misnamed> {
  static constexpr std::string_view value = "f65";
};

namespace suite {
namespace {

void bad_names(const part&) {
  for (const std::string& bad : {std::string(), std::string(128, 'x'), std::string("a b"), std::string("/a"), std::string("a/../b")}) {
    FAILS(invalid, SAYS(""), crossdock::region(crossdock::open_or_create, bad));
    FAILS(invalid, SAYS(""), region().simple<int>(bad));
    FAILS(invalid, SAYS(""), region().port(bad, producer));
  }
}

void bad_sizes(const part&) {
  FAILS(invalid, SAYS(""), region("b", crossdock::create_only, 0));
  try {
    (void)region("b", crossdock::create_only, UINT64_C(1) << 60);
    throw failed("a region of 2^60 bytes was made");
  } catch (const crossdock::error& e) {
    CHECK(e.status() == status::no_space || e.status() == status::invalid);
  }
  for (const auto size : {UINT64_C(1) << 20, crossdock::region::default_size}) (void)region("s", crossdock::open_or_create, size);
  FAILS(invalid, SAYS(""), region("s", crossdock::open_or_create, 2 << 20));
  FAILS(invalid, SAYS("f65"), region().simple<misnamed>("n"));
}

void no_daemon(const part&) {
  const std::string nowhere = "/nonexistent/crossdock/endpoint.sock";
  CHECK(took([&] { FAILS(not_found, SAYS(nowhere), crossdock::session({.socket = nowhere, .private_daemon = false})); }) < 2000);
}

void progress(const part&) {
  FAILS(invalid, SAYS("11 of 10"), crossdock::session().progress(11, 10));
  for (std::uint64_t n = 1; n <= 1000; n++) crossdock::session().progress(n, 1000);
  crossdock::session().progress(0, 0);
}

}  // namespace

const std::vector<row>& error_rows() {
  static const std::vector<row> rows = {
      {"E1", "bad names", bad_names},
      {"E2", "bad sizes and types", bad_sizes},
      {"E3", "no daemon", no_daemon},
      {"E4", "progress", progress},
  };
  return rows;
}

}  // namespace suite
