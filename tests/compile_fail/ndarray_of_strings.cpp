// expect: an ndarray's elements are plain data
#include <crossdock/crossdock.hpp>

#ifdef MISUSE
using element = crossdock::string;
#else
using element = double;
#endif

std::size_t use(crossdock::region& r) { return r.container<crossdock::ndarray<element>>("a").size(); }
