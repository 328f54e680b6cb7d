// Gives each test a region of its own, and checks at the end of the test that it leaked no memory of the region.
#pragma once

#include <crossdock/crossdock.hpp>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace containers {

/// Each test has a region of its own. The test removes the objects that it made, and must leave as many blocks in the
/// region as there were at its beginning.
class InRegion : public testing::Test {
 protected:
  InRegion() : region(crossdock::create_only, region_name(), 64 << 20), blocks_before_(region.statistics().blocks) {}

  void TearDown() override {
    for (const auto& object : region.objects()) region.remove(object.name);
    EXPECT_EQ(region.statistics().blocks, blocks_before_) << "a container did not give back all of its memory";
    crossdock::remove_region(region_name());
  }

  static std::string region_name() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    return "cpp-containers-" + std::to_string(::getpid()) + "/" + test->test_suite_name() + "." + test->name();
  }

  crossdock::region region;

 private:
  std::uint64_t blocks_before_;
};

}  // namespace containers
