// Finds, makes and removes named objects, and calls the constructors and destructors of their types.
#pragma once

#include <crossdock/allocator.hpp>
#include <crossdock/detail/counted.hpp>
#include <crossdock/timeout.hpp>
#include <crossdock/type_name.hpp>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace crossdock {

/// How to open a region or an object.
enum class mode : int {
  create_only = CROSSDOCK_CREATE_ONLY,        ///< create the object; EXISTS if the name exists
  open_only = CROSSDOCK_OPEN_ONLY,            ///< open the object; NOT_FOUND if the name does not exist
  open_or_create = CROSSDOCK_OPEN_OR_CREATE,  ///< open the object, or create it if the name does not exist
  recreate = CROSSDOCK_RECREATE,              ///< remove the object if the name exists, and then create a new object
};
inline constexpr mode create_only = mode::create_only;
inline constexpr mode open_only = mode::open_only;
inline constexpr mode open_or_create = mode::open_or_create;
inline constexpr mode recreate = mode::recreate;

namespace detail {

/// For each opaque type that this process has used: its name, and the function that destroys an object of this type.
/// With these functions, remove("name") works without the C++ type. The library itself frees what objects of other types
/// hold, and checks each word that it follows, which destructors do not.
class destroyers {
 public:
  using function = void (*)(void*);

  static destroyers& instance() {
    static destroyers all;
    return all;
  }
  template <class T>
  void learn() {
    if constexpr (is_opaque(type_name<T>::value)) {
      static const bool once = [this] {
        const std::lock_guard lock(guard_);
        known_.emplace(type_name<T>::value, [](void* p) { std::destroy_at(static_cast<T*>(p)); });
        return true;
      }();
      (void)once;
    }
  }
  function find(std::string_view type) {
    const std::lock_guard lock(guard_);
    const auto it = known_.find(type);
    return it == known_.end() ? nullptr : it->second;
  }

 private:
  std::mutex guard_;
  std::map<std::string, function, std::less<>> known_;
};

template <class T, class Alloc, class... Args>
void construct_object(const Alloc& alloc, T* place, Args&&... args) {
  if constexpr (std::is_array_v<T>) {
    static_assert(sizeof...(Args) == 0, "crossdock: an array starts as zeroes; fill it afterwards");
    for (auto& element : *place) construct_object(alloc, std::addressof(element));
  } else {
    construct_in(alloc, place, std::forward<Args>(args)...);
  }
}

/// Checks an object that another task may have made. The header of a vector, string or ndarray is checked before its
/// pointers are followed.
template <class T>
T* opened(crossdock_region* region, void* address) {
  T* const place = static_cast<T*>(address);
  take_over(place);
  if constexpr (requires { place->check_in(region); }) place->check_in(region);
  return place;
}

/// Finds or makes the object of type T called `name`. `args` are for the constructor if the object is made. If the
/// constructor throws, or the object cannot be committed, the name and the memory are free again.
template <class T, class... Args>
T* open_object(crossdock_region* region, const void* base, const std::string& name, mode m, timeout wait, Args&&... args) {
  static_assert(alignof(T) <= 4096, "crossdock: no object is aligned to more than a page");
  const crossdock_type type = type_of<T>();
  crossdock_object object{};
  check(crossdock_object_claim(region, name.c_str(), &type, static_cast<crossdock_mode>(m), wait.milliseconds(), &object));
  destroyers::instance().learn<T>();
  if (!object.created) return opened<T>(region, object.address);
  T* const place = static_cast<T*>(object.address);
  try {
    construct_object(allocator<void>(base), place, std::forward<Args>(args)...);
  } catch (...) {
    (void)crossdock_object_abandon(region, &object);
    throw;
  }
  hand_over(place);
  try {
    check(crossdock_object_commit(region, &object));
  } catch (...) {
    // If the type is not opaque, the library frees what the object holds when it removes the object, even if it can
    // remove the object only later. So the destructor is not called for such a type: a commit fails if the region's
    // lock cannot be taken, and without the lock the destructor could not free large blocks, which would be lost.
    if (is_opaque(type.name)) std::destroy_at(place);
    (void)crossdock_object_abandon(region, &object);
    throw;
  }
  return place;
}

/// Fails if no region of this capacity has room for a T, or if the type of T is not allowed. So a call with `recreate`
/// that cannot succeed does not destroy the old object.
template <class T>
void check_new(crossdock_region* region, const std::string& name, std::uint64_t capacity) {
  const crossdock_type type = type_of<T>();
  crossdock_object object{};
  const auto s = crossdock_object_claim(region, name.c_str(), &type, CROSSDOCK_OPEN_ONLY, CROSSDOCK_NO_WAIT, &object);
  if (s == CROSSDOCK_INVALID) raise(s);
  if (sizeof(T) > capacity) throw error(status::no_space, "object '" + name + "' is larger than the region");
}

/// Waits for the object of type T called `name`, which another task makes. This function never makes an object.
template <class T>
T* open_object_only(crossdock_region* region, const std::string& name, timeout wait) {
  const crossdock_type type = type_of<T>();
  crossdock_object object{};
  check(crossdock_object_claim(region, name.c_str(), &type, CROSSDOCK_OPEN_ONLY, wait.milliseconds(), &object));
  destroyers::instance().learn<T>();
  return opened<T>(region, object.address);
}

/// Removes the object called `name`, with all that it holds. If its type is opaque, the destructor runs first. If the
/// object cannot be removed after that, the error says that its contents are freed already.
inline void remove_object(crossdock_region* region, const std::string& name) {
  crossdock_object_info info{};
  check(crossdock_object_find(region, name.c_str(), &info));
  if (!is_opaque(info.type)) return check(crossdock_object_remove(region, name.c_str()));
  const auto destroy = destroyers::instance().find(info.type);
  if (!destroy) {
    throw error(status::invalid, "object '" + name + "' is a " + info.type +
                                     ", which this process has not used: say remove<T>(name), so that what it holds is freed too");
  }
  crossdock_object object{};
  check(crossdock_handle_load(region, info.handle, nullptr, &object));
  destroy(object.address);
  if (const auto s = crossdock_object_remove(region, name.c_str()); s != CROSSDOCK_OK) {
    const std::string what = "; what object '" + name + "' held is freed already, so no task may use it";
    throw error(static_cast<status>(s), last_message(s) + what + "; remove it with crossdock_object_remove");
  }
}

}  // namespace detail
}  // namespace crossdock
