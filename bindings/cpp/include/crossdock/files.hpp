// Waits for files of managed directories before they are opened. In unmodified programs, the preload library makes
// each open wait. This header is for programs that the preload library does not reach, and for programs that want
// crossdock's error.
//
//     crossdock::ifstream in("/data/frames/7.txt");     // waits until the producer has closed it
#pragma once

#include <crossdock.h>
#include <crossdock/error.hpp>

#include <fstream>
#include <string>

namespace crossdock {

/// Waits until the file exists, if it lies in a managed directory that this task consumes. For every other path it
/// returns immediately. Errors: not_found (the producers have ended without publishing the file), timed_out (the
/// directory's time limit has passed), system (a signal interrupted the wait, and its handler was installed without
/// SA_RESTART).
inline void await_file(const std::string& path) { detail::check(crossdock_file_await(path.c_str())); }

/// A std::ifstream that waits for its file before it opens the file. Errors as for await_file.
class ifstream : public std::ifstream {
 public:
  explicit ifstream(const std::string& path, std::ios_base::openmode mode = std::ios_base::in)
      : std::ifstream((await_file(path), path), mode) {}
};

}  // namespace crossdock
