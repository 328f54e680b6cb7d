// expect: simple<T> takes plain data without raw pointers
// With MISUSE defined, this program must not compile, because a pointer is valid in one process only.
#include <crossdock/crossdock.hpp>

#ifdef MISUSE
using shared = double*;
#else
using shared = crossdock::handle;
#endif

shared& use(crossdock::region& r) { return r.simple<shared>("where"); }
