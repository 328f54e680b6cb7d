// Restarts from the newest undamaged checkpoint of a folder and prints what it finds.
#include <crossdock/checkpoint.hpp>

#include <cstdio>
#include <numeric>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto series = crossdock::ranked("field");
  const auto saved = crossdock::restart(argv[1]);
  if (!saved || crossdock::restart("/nowhere")) return 3;
  std::array<double, 6> v{};
  saved->read("v10", std::span(v), series);
  if (saved->variable("v10").bytes != sizeof v || saved->skipped().find("v") == std::string::npos) return 4;
  try {
    saved->read("v10", std::span(v).first<5>(), series);
    return 5;
  } catch (const crossdock::error& e) {
    if (e.status() != crossdock::status::wrong_type) return 6;
  }
  const auto copy = *saved;  // a copy refers to the same file
  std::printf("%s %llu %lld %.3f %s %d %.9e\n", series.c_str(), static_cast<unsigned long long>(copy.sequence(series)),
              static_cast<long long>(copy.integer("step", series)), copy.real("time"), copy.text("note").c_str(), 1,
              std::accumulate(v.begin(), v.end(), 0.0));
}
