// expect: an ndarray's elements are plain data
// With MISUSE defined, this program must not compile, because a string in an ndarray would only be a pointer to its
// characters.
#include <crossdock/crossdock.hpp>

#ifdef MISUSE
using element = crossdock::string;
#else
using element = double;
#endif

std::size_t use(crossdock::region& r) { return r.container<crossdock::ndarray<element>>("a").size(); }
