// crossdock for C++20: everything. Link with libcrossdock (CMake: crossdock::crossdock; pkg-config: crossdock).
//
//     namespace dhmem = crossdock;              // the paper's listings compile as they are
//     dhmem::Dhmem dhmem("shm");
//     auto& v = dhmem.container<dhmem::vector<int>>("v");
#pragma once

#include <crossdock/allocator.hpp>
#include <crossdock/checkpoint.hpp>
#include <crossdock/containers.hpp>
#include <crossdock/error.hpp>
#include <crossdock/files.hpp>
#include <crossdock/handle.hpp>
#include <crossdock/item.hpp>
#include <crossdock/message.hpp>
#include <crossdock/ndarray.hpp>
#include <crossdock/observer.hpp>
#include <crossdock/offset_ptr.hpp>
#include <crossdock/port.hpp>
#include <crossdock/publisher.hpp>
#include <crossdock/region.hpp>
#include <crossdock/result.hpp>
#include <crossdock/session.hpp>
#include <crossdock/string.hpp>
#include <crossdock/timeout.hpp>
#include <crossdock/type_name.hpp>
#include <crossdock/variable.hpp>
#include <crossdock/vector.hpp>
