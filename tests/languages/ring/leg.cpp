// The second leg of the ring, in which a vector passes through programs in five languages (README.md).
#include <crossdock/crossdock.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>

using namespace std::chrono_literals;
namespace cd = crossdock;

constexpr int me = 1;

static void check(bool so, const char* what) {
  if (!so) throw std::runtime_error(std::string("not so: ") + what);
}

static void run(const std::string& prefix, std::uint64_t laps) {
  cd::region data(cd::mode::open_only, prefix + "/data", 30s);
  auto in = data.port(prefix + "/rust-cpp", cd::consumer, {.capacity = 2});
  auto out = data.port(prefix + "/cpp-python", cd::producer, {.capacity = 2});
  std::optional<cd::handle> same;
  for (std::uint64_t lap = 0; lap < laps; lap++) {
    auto message = in.receive<cd::vector<double>>(30s);
    auto& v = *message;
    const auto offset = static_cast<std::uint64_t>(reinterpret_cast<const char*>(v.data()) - static_cast<const char*>(data.base()));
    check(message.tag() == lap && message.value<std::uint64_t>() == offset, "the elements lie where Rust put them");
    check(data.save(v) == message.data_handle() && same.value_or(message.data_handle()) == message.data_handle(), "the handle is the same");
    same = message.data_handle();
    check(v[me - 1] == double(lap + 1) && v[me + 1] == double(lap), "the leg before was there, the one behind was not");
    v[me] += 1;
    out.send_with(v, offset, lap, 30s);
  }
  check(out.statistics().messages == laps && out.statistics().bytes_handed_over == laps * 8008, "all is counted");
  check(out.statistics().bytes_copied == 0, "nothing was copied");
  out.close();
}

int main(int, char** arguments) {
  try {
    run(arguments[1], std::strtoull(arguments[2], nullptr, 10));
    std::printf("ok ring cpp: same handle, same elements, 0 copied\n");
    return 0;
  } catch (const std::exception& e) {
    std::printf("FAILED ring cpp: %s\n", e.what());
    return 1;
  }
}
