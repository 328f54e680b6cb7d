// Tests rows R1 to R17 of the table in ../conformance.md: regions and their objects.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <thread>

#include "suite.hpp"

namespace suite {
namespace {

using crossdock::create_only;
using crossdock::handle;
using crossdock::open_only;
using crossdock::open_or_create;
using crossdock::recreate;
using doubles = crossdock::vector<double>;

std::string text_of(handle h) { return std::to_string(h.segment) + ":" + std::to_string(h.offset); }
handle handle_of(const std::string& text) {
  const auto colon = text.find(':');
  return {std::stoull(text.substr(0, colon)), std::stoull(text.substr(colon + 1))};
}

void modes(const part&) {
  FAILS(not_found, SAYS(name()), region("", open_only));
  auto first = region("", create_only);
  FAILS(exists, SAYS(name()), region("", create_only));
  EQUAL(region("", open_only).id(), first.id());
  EQUAL(region("", open_or_create).id(), first.id());
  first.simple<int>("n") = 1;
  auto second = region("", recreate);
  CHECK(second.id() != first.id());
  FAILS(not_found, SAYS("n"), second.simple<int>(open_only, "n"));
}

void simple(const part& me) {
  int& n = region().simple<int>("n");
  if (me.role == "B") {
    EQUAL(n, 123);
    n = 3 * n + 1;
    return;
  }
  EQUAL(n, 0);
  n = 123;
  process b("B");
  b.ends_well();
  EQUAL(n, 370);
}

struct mixed {
  int i;
  double d;
  int three[3];
};

void structs(const part& me) {
  auto& s = region().simple<mixed>("s");
  auto& a = region().simple<float[512]>("a");
  if (me.role == "B") {
    CHECK(s.i == 7 && s.d == 2.5 && s.three[0] == 1 && s.three[1] == 2 && s.three[2] == 3);
    for (int i = 0; i < 512; ++i) EQUAL(a[i], static_cast<float>(i) / 2);
    s.d = -2.5;
    a[511] = 1;
    return;
  }
  s = {7, 2.5, {1, 2, 3}};
  for (int i = 0; i < 512; ++i) a[i] = static_cast<float>(i) / 2;
  process("B").ends_well();
  EQUAL(s.d, -2.5);
  EQUAL(a[511], 1.0F);
}

void vectors(const part& me) {
  auto& v = region().container<doubles>("v");
  if (me.role == "B") {
    EQUAL(v.size(), 1000U);
    v.resize(100'000);
    return;
  }
  CHECK(v.empty());
  v.resize(1000);
  std::iota(v.begin(), v.end(), 0.0);
  process("B").ends_well();
  EQUAL(v.size(), 100'000U);
  for (std::size_t i = 0; i < v.size(); ++i) EQUAL(v[i], i < 1000 ? static_cast<double>(i) : 0.0);
  v.resize(10);
  EQUAL(v.size(), 10U);
  EQUAL(v[9], 9.0);
}

void strings(const part& me) {
  auto& s = region().container<crossdock::string>("s");
  if (me.role == "B") {
    EQUAL(s, "crossdock");
    s = std::string(1000, 'x');
    return;
  }
  CHECK(s.empty());
  s = "crossdock";
  process("B").ends_well();
  EQUAL(s, std::string(1000, 'x'));
  s = "";
  EQUAL(s.size(), 0U);
}

void ndarrays(const part& me) {
  using array = crossdock::ndarray<float>;
  auto& c = region().container<array>("c");
  auto& f = region().container<array>("f");
  const auto value = [](std::size_t i, std::size_t j, std::size_t k) { return static_cast<float>(100 * i + 10 * j + k); };
  const auto each = [](auto&& visit) {
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t j = 0; j < 4; ++j)
        for (std::size_t k = 0; k < 5; ++k) visit(i, j, k);
  };
  if (me.role == "B") {
    const std::vector<std::size_t> wanted = {3, 4, 5};
    CHECK(std::ranges::equal(c.shape(), wanted) && std::ranges::equal(f.shape(), wanted));
    CHECK(c.order() == crossdock::order::c && f.order() == crossdock::order::fortran);
    each([&](auto i, auto j, auto k) { CHECK(c(i, j, k) == value(i, j, k) && f(i, j, k) == value(i, j, k)); });
    CHECK(f.data()[1] == value(1, 0, 0) && c.data()[1] == value(0, 0, 1));
    c.reshape({6, 10});
    return;
  }
  c.reshape({3, 4, 5});
  f.reshape({3, 4, 5}, crossdock::order::fortran);
  auto vc = c.view<3>();
  auto vf = f.view<3>();
  each([&](auto i, auto j, auto k) { vc(i, j, k) = vf(i, j, k) = value(i, j, k); });
  process("B").ends_well();
  EQUAL(c.rank(), 2U);
  CHECK(c.extent(0) == 6 && c.extent(1) == 10);
}

void wrong_type(const part&) {
  int& n = region().simple<int>("n");
  n = 5;
  FAILS(wrong_type, SAYS("n", "i32", "f64"), region().simple<double>("n"));
  EQUAL(n, 5);
}

void not_found(const part& me) {
  if (me.role == "B") {
    std::this_thread::sleep_for(200ms);
    region().simple<int>("late") = 1;
    return;
  }
  CHECK(took([] { FAILS(not_found, SAYS("late"), region().open<int>("late", crossdock::no_wait)); }) < 100);
  const double ms = took([] { FAILS(timed_out, SAYS("late"), region().open<int>("late", 200ms)); });
  CHECK(ms >= 199 && ms < 2000);
  process b("B");
  (void)region().open<int>("late", wait);
  b.ends_well();
}

void only_create(const part&) {
  int& n = region().simple<int>(create_only, "n");
  n = 9;
  FAILS(exists, SAYS("n"), region().simple<int>(create_only, "n"));
  EQUAL(n, 9);
}

void save_and_load(const part& me) {
  if (me.role == "B") {
    const handle h = handle_of(me.argument);
    auto& v = region().load<doubles>(h);
    CHECK(v.size() == 3 && v[0] == 1 && v[1] == 2 && v[2] == 3);
    CHECK(region().save(v) == h);
    FAILS(wrong_type, SAYS("f64", "i32"), region().load<crossdock::vector<int>>(h));
    return;
  }
  auto& v = region().container<doubles>("v");
  v = {1, 2, 3};
  process("B", text_of(region().save(v))).ends_well();
}

void bad_handles(const part&) {
  auto& r = region();
  auto other = region("b", create_only);
  const handle elsewhere = other.save(other.simple<int>("n"));
  const handle good = r.save(r.simple<int>("good"));
  const handle gone = r.save(r.simple<int>("gone"));
  r.remove("gone");
  for (const handle& bad : {elsewhere, gone, handle{good.segment, good.offset + 8}, handle{good.segment, UINT64_C(1) << 40},
                            handle{UINT64_C(0x9E3779B97F4A7C15), UINT64_C(0xD1B54A32D192ED03)}, handle{}}) {
    FAILS(bad_handle, SAYS(""), r.load<int>(bad));
  }
  (void)r.load<int>(good);
}

void remove_and_reuse(const part&) {
  auto& r = region();
  FAILS(not_found, SAYS("o"), r.remove("o"));
  const auto before = r.statistics();
  for (int i = 0; i < 100; ++i) {
    r.container<doubles>("o").resize(1000);
    r.remove("o");
    (void)r.simple<int>("o");
    r.remove("o");
  }
  const auto after = r.statistics();
  EQUAL(after.used, before.used);
  EQUAL(after.objects, before.objects);
}

void full(const part&) {
  auto r = region("", create_only, 1 << 20);
  auto& v = r.container<crossdock::vector<std::uint8_t>>("v");
  v = {1, 2, 3};
  FAILS(no_space, SAYS(""), v.resize(4 << 20));
  CHECK(v.size() == 3 && v[2] == 3);
  using block = std::array<std::uint8_t, 65536>;
  std::vector<block*> blocks;
  FAILS(no_space, SAYS(""), [&] {
    for (;;) blocks.push_back(&r.create<block>());
  }());
  CHECK(blocks.size() >= 2);
  for (std::size_t i = 0; i < blocks.size(); i += 2) r.destroy(*blocks[i]);
  (void)r.create<block>();
}

void removed(const part&) {
  auto r = region("", create_only);
  int& n = r.simple<int>("n");
  n = 4;
  const handle h = r.save(n);
  crossdock::remove_region(name());
  n = n + 1;
  EQUAL(n, 5);
  FAILS(not_found, SAYS(name()), region("", open_only));
  auto fresh = region("", create_only);
  CHECK(fresh.id() != r.id());
  FAILS(bad_handle, SAYS(""), fresh.load<int>(h));
}

void sizes(const part&) {
  auto made = region("", open_or_create, 16 << 20);
  EQUAL(made.capacity(), std::uint64_t{16} << 20);
  EQUAL(region("", open_or_create, 16 << 20).id(), made.id());
  FAILS(invalid, SAYS("16777216"), region("", open_or_create, (16 << 20) + 4096));
  FAILS(invalid, SAYS("16781312"), region("", open_or_create, (16 << 20) + 4096));
}

void moves(const part& me) {
  if (me.role == "B") {
    const auto moved = crossdock::region::moved(name("b"));
    auto& v = moved.load<doubles>(handle_of(me.argument));
    CHECK(v.size() == 3 && v[0] == 1 && v[1] == 2 && v[2] == 3);
    EQUAL(crossdock::region::moved(name("b")).id(), moved.id());
    FAILS(invalid, SAYS(name("b")), crossdock::region::copied(name("b"), name("b"), 100ms));
    FAILS(not_found, SAYS(name("c")), crossdock::region::moved(name("c"), 100ms));
    crossdock::remove_region(name("b"));
    return;
  }
  std::string text;
  {
    auto made = region("b", create_only);
    auto& v = made.container<doubles>("v");
    v = {1, 2, 3};
    text = text_of(made.save(v));
  }
  process("B", text).ends_well();
}

void ndarrays_of_fixed_arrays(const part& me) {
  using element = std::array<double, 3>;
  auto& f = region().container<crossdock::ndarray<element>>("f");
  const auto value = [](std::size_t i, std::size_t j) {
    const auto first = static_cast<double>(100 * i + 10 * j);
    return element{first, first + 1, first + 2};
  };
  if (me.role == "B") {
    CHECK(std::ranges::equal(f.shape(), std::vector<std::size_t>{2, 3}));
    CHECK(f.order() == crossdock::order::fortran);
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t j = 0; j < 3; ++j) CHECK(f(i, j) == value(i, j));
    CHECK(f.data()[0] == value(0, 0) && f.data()[1] == value(1, 0) && f.data()[2] == value(0, 1));
    f(1, 2) = {-1, -2, -3};
    return;
  }
  f.reshape({2, 3}, crossdock::order::fortran);
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t j = 0; j < 3; ++j) f(i, j) = value(i, j);
  process("B").ends_well();
  CHECK((f(1, 2) == element{-1, -2, -3}));
}

}  // namespace

const std::vector<row>& region_rows() {
  static const std::vector<row> rows = {
      {"R1", "modes", modes},
      {"R2", "simple", simple},
      {"R3", "struct and array", structs},
      {"R4", "vector", vectors},
      {"R5", "string", strings},
      {"R6", "ndarray", ndarrays},
      {"R7", "wrong type", wrong_type},
      {"R8", "not found, with and without deadline", not_found},
      {"R9", "create only", only_create},
      {"R10", "save and load", save_and_load},
      {"R11", "bad handles", bad_handles},
      {"R12", "remove and reuse", remove_and_reuse},
      {"R13", "region full", full},
      {"R14", "removed region", removed},
      {"R15", "size", sizes},
      {"R16", "move", moves},
      {"R17", "ndarray of fixed arrays", ndarrays_of_fixed_arrays},
  };
  return rows;
}

}  // namespace suite
