// expect: simple<T> takes plain data without raw pointers
// With MISUSE defined, this program must not compile, because a raw pointer means nothing in another process.
#include <crossdock/crossdock.hpp>

struct node {
#ifdef MISUSE
  node* next;
#else
  crossdock::offset_ptr<node> next;
#endif
  int value;
};

int& use(crossdock::region& r) { return r.simple<node>("head").value; }
