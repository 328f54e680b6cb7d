// ThreadSanitizer does not see into libcrossdock, where the threads synchronize. So these calls tell ThreadSanitizer
// that everything before `hand_over` of an address happened before `take_over` of the same address. In builds without
// ThreadSanitizer the calls do nothing.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define CROSSDOCK_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CROSSDOCK_TSAN 1
#endif
#endif

#ifdef CROSSDOCK_TSAN
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

namespace crossdock::detail {

inline void hand_over([[maybe_unused]] const void* p) noexcept {
#ifdef CROSSDOCK_TSAN
  __tsan_release(const_cast<void*>(p));
#endif
}
inline void take_over([[maybe_unused]] const void* p) noexcept {
#ifdef CROSSDOCK_TSAN
  __tsan_acquire(const_cast<void*>(p));
#endif
}

}  // namespace crossdock::detail
