// Tests the classes that hold a counted reference, such as session and region.
#include <type_traits>
#include <vector>

#include "fixture.hpp"

namespace containers {
namespace {

class References : public InRegion {};

/// A copy counts a reference, which can fail. A move counts none.
template <class... T>
constexpr bool only_moves_cannot_fail = ((!std::is_nothrow_copy_assignable_v<T> && !std::is_nothrow_copy_constructible_v<T>) && ...) &&
                                        ((std::is_nothrow_move_assignable_v<T> && std::is_nothrow_move_constructible_v<T>) && ...);
static_assert(only_moves_cannot_fail<crossdock::session, crossdock::region, crossdock::publisher, crossdock::observer, crossdock::version, crossdock::checkpoint>);

TEST_F(References, AnAssignmentForWhichThereIsNoReferenceFailsAndChangesNothing) {
  const crossdock::session full;
  std::vector<crossdock::session> all;
  all.reserve(20'000);
  EXPECT_THROW(while (all.size() < all.capacity()) all.push_back(full), crossdock::error);
  crossdock::session other{crossdock::connect_options{}};
  const auto* const before = other.get();
  EXPECT_THROW(other = full, crossdock::error);
  EXPECT_EQ(other.get(), before);
  all.pop_back();
  other = full;
  EXPECT_EQ(other.get(), full.get());
}

}  // namespace
}  // namespace containers
