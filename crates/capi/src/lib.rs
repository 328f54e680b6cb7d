//! The C ABI: libcrossdock.so, crossdock.h, crossdock.pc.
