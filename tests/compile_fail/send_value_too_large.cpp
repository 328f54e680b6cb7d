// expect: no matching function for call to
// With MISUSE defined, this program must not compile, because only 24 bytes travel inside a message; larger values
// lie in the region and are sent by handle.
#include <crossdock/crossdock.hpp>

#include <array>

#ifdef MISUSE
using small = std::array<char, 25>;
#else
using small = std::array<char, 24>;
#endif

void use(crossdock::port& p) { p.send_value(small{}); }
