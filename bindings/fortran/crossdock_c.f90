! The declarations of crossdock.h in Fortran, for the module `crossdock`. Programs use the module `crossdock` and not
! this one. A test of crates/layout (`generated`) writes the enumerators and limits of this file. Change them in
! crates/layout.
! SPDX-License-Identifier: Apache-2.0
module crossdock_c
  use, intrinsic :: iso_c_binding
  implicit none
  private :: c_ptr, c_char, c_int, c_int8_t, c_int32_t, c_int64_t, c_size_t
  public

  enum, bind(c)
    enumerator :: CROSSDOCK_OK = 0
    enumerator :: CROSSDOCK_NOT_YET = 1
    enumerator :: CROSSDOCK_TIMED_OUT = 2
    enumerator :: CROSSDOCK_CLOSED = 3
    enumerator :: CROSSDOCK_PEER_DIED = 4
    enumerator :: CROSSDOCK_NOT_FOUND = 5
    enumerator :: CROSSDOCK_EXISTS = 6
    enumerator :: CROSSDOCK_WRONG_TYPE = 7
    enumerator :: CROSSDOCK_INVALID = 8
    enumerator :: CROSSDOCK_BAD_HANDLE = 9
    enumerator :: CROSSDOCK_DENIED = 10
    enumerator :: CROSSDOCK_NO_SPACE = 11
    enumerator :: CROSSDOCK_BUSY = 12
    enumerator :: CROSSDOCK_CORRUPT = 13
    enumerator :: CROSSDOCK_DISCONNECTED = 14
    enumerator :: CROSSDOCK_INCOMPATIBLE = 15
    enumerator :: CROSSDOCK_SYSTEM = 16
  end enum
  enum, bind(c)
    enumerator :: CROSSDOCK_CREATE_ONLY = 0
    enumerator :: CROSSDOCK_OPEN_ONLY = 1
    enumerator :: CROSSDOCK_OPEN_OR_CREATE = 2
    enumerator :: CROSSDOCK_RECREATE = 3
  end enum
  enum, bind(c)
    enumerator :: CROSSDOCK_ORDER_C = 0
    enumerator :: CROSSDOCK_ORDER_FORTRAN = 1
  end enum
  enum, bind(c)
    enumerator :: CROSSDOCK_PRODUCER = 0
    enumerator :: CROSSDOCK_CONSUMER = 1
  end enum
  enum, bind(c)
    enumerator :: CROSSDOCK_ONE_TO_ONE = 0
    enumerator :: CROSSDOCK_FAN_OUT = 1
    enumerator :: CROSSDOCK_FAN_IN = 2
    enumerator :: CROSSDOCK_WORK_QUEUE = 3
    enumerator :: CROSSDOCK_ANY_PATTERN = 4
  end enum

  integer(c_int64_t), parameter :: CROSSDOCK_NO_WAIT = 0, CROSSDOCK_WAIT = -1
  !> The `size` argument that accepts an existing region of any size. Its bits are those of UINT64_MAX in the C header.
  integer(c_int64_t), parameter :: CROSSDOCK_ANY_SIZE = -1
  integer, parameter :: CROSSDOCK_NAME_MAX = 127, CROSSDOCK_TYPE_NAME_MAX = 191
  integer, parameter :: CROSSDOCK_INLINE_MAX = 24, CROSSDOCK_RANK_MAX = 8

  !> The place of an object: 16 bytes that are the same in every process and may be copied and sent.
  type, bind(c) :: crossdock_handle
    integer(c_int64_t) :: segment = 0
    integer(c_int64_t) :: offset = 0
  end type

  type, bind(c) :: c_connect_options
    type(c_ptr) :: socket = c_null_ptr
    type(c_ptr) :: task = c_null_ptr
    type(c_ptr) :: workflow = c_null_ptr
    integer(c_int64_t) :: rank = -1
    integer(c_int64_t) :: timeout_ms = -1
    integer(c_int32_t) :: private_daemon = 1
    integer(c_int32_t) :: reserved = 0
  end type

  type, bind(c) :: c_type
    type(c_ptr) :: name = c_null_ptr
    integer(c_int64_t) :: size = 0
    integer(c_int32_t) :: align = 0
    integer(c_int32_t) :: reserved = 0
  end type

  type, bind(c) :: c_object
    type(c_ptr) :: address = c_null_ptr
    type(crossdock_handle) :: handle
    integer(c_int64_t) :: size = 0
    integer(c_int32_t) :: created = 0
    integer(c_int32_t) :: reserved = 0
  end type

  type, bind(c) :: c_object_info
    character(kind=c_char) :: name(128)
    character(kind=c_char) :: type_name(192)
    type(crossdock_handle) :: handle
    integer(c_int64_t) :: size
    integer(c_int32_t) :: align
    integer(c_int32_t) :: reserved
  end type

  type, bind(c) :: crossdock_region_statistics
    integer(c_int64_t) :: capacity, reserved, used, blocks, objects, slots, largest_free, unused
  end type

  type, bind(c) :: c_port_options
    integer(c_int32_t) :: pattern = CROSSDOCK_ANY_PATTERN
    integer(c_int32_t) :: capacity = 0
    integer(c_int32_t) :: persistent = 0
  end type

  !> A message of a port.
  type, bind(c) :: crossdock_message
    type(crossdock_handle) :: handle
    integer(c_int64_t) :: tag = 0
    integer(c_int64_t) :: position = 0
    integer(c_int32_t) :: inline_length = 0
    integer(c_int32_t) :: reserved = 0
    integer(c_int8_t) :: inline_bytes(CROSSDOCK_INLINE_MAX) = 0
  end type

  type, bind(c) :: crossdock_port_statistics
    integer(c_int64_t) :: messages, received, bytes_handed_over, bytes_copied, producer_wait_ns, consumer_wait_ns
    integer(c_int64_t) :: sleeps, wakes, redelivered, voided, under_way, unused
  end type

  interface
    function c_status_name(status) bind(c, name="crossdock_status_name") result(text)
      import :: c_int, c_ptr
      integer(c_int), value :: status
      type(c_ptr) :: text
    end function
    function c_file_await(path) bind(c, name="crossdock_file_await") result(stat)
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int) :: stat
    end function
    function c_error_message() bind(c, name="crossdock_error_message") result(text)
      import :: c_ptr
      type(c_ptr) :: text
    end function
    function c_error_raise(status, message) bind(c, name="crossdock_error_raise") result(stat)
      import :: c_int, c_char
      integer(c_int), value :: status
      character(kind=c_char), intent(in) :: message(*)
      integer(c_int) :: stat
    end function
    function c_session_connect(options, session) bind(c, name="crossdock_session_connect") result(stat)
      import :: c_int, c_ptr, c_connect_options
      type(c_connect_options), intent(in) :: options
      type(c_ptr), intent(out) :: session
      integer(c_int) :: stat
    end function
    function c_session_unref(session) bind(c, name="crossdock_session_unref") result(stat)
      import :: c_int, c_ptr
      type(c_ptr), value :: session
      integer(c_int) :: stat
    end function
    function c_session_progress(session, done, of) bind(c, name="crossdock_session_progress") result(stat)
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: session
      integer(c_int64_t), value :: done, of
      integer(c_int) :: stat
    end function
    function c_session_load(session, handle, type, region, object) bind(c, name="crossdock_session_load") result(stat)
      import :: c_int, c_ptr, c_type, c_object, crossdock_handle
      type(c_ptr), value :: session
      type(crossdock_handle), value :: handle
      type(c_type), intent(in) :: type
      type(c_ptr), intent(out) :: region
      type(c_object), intent(out) :: object
      integer(c_int) :: stat
    end function
    function c_region_open(session, name, mode, size, timeout_ms, region) bind(c, name="crossdock_region_open") &
        result(stat)
      import :: c_int, c_ptr, c_char, c_int64_t
      type(c_ptr), value :: session
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), value :: mode
      integer(c_int64_t), value :: size, timeout_ms
      type(c_ptr), intent(out) :: region
      integer(c_int) :: stat
    end function
    function c_region_copy(session, name, copy, timeout_ms, region) bind(c, name="crossdock_region_copy") result(stat)
      import :: c_int, c_ptr, c_char, c_int64_t
      type(c_ptr), value :: session
      character(kind=c_char), intent(in) :: name(*), copy(*)
      integer(c_int64_t), value :: timeout_ms
      type(c_ptr), intent(out) :: region
      integer(c_int) :: stat
    end function
    function c_region_move(session, name, timeout_ms, region) bind(c, name="crossdock_region_move") result(stat)
      import :: c_int, c_ptr, c_char, c_int64_t
      type(c_ptr), value :: session
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: timeout_ms
      type(c_ptr), intent(out) :: region
      integer(c_int) :: stat
    end function
    function c_region_unref(region) bind(c, name="crossdock_region_unref") result(stat)
      import :: c_int, c_ptr
      type(c_ptr), value :: region
      integer(c_int) :: stat
    end function
    function c_region_remove(session, name) bind(c, name="crossdock_region_remove") result(stat)
      import :: c_int, c_ptr, c_char
      type(c_ptr), value :: session
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int) :: stat
    end function
    function c_region_id(region, segment) bind(c, name="crossdock_region_id") result(stat)
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: region
      integer(c_int64_t), intent(out) :: segment
      integer(c_int) :: stat
    end function
    function c_region_statistics_get(region, statistics) bind(c, name="crossdock_region_statistics_get") result(stat)
      import :: c_int, c_ptr, crossdock_region_statistics
      type(c_ptr), value :: region
      type(crossdock_region_statistics), intent(out) :: statistics
      integer(c_int) :: stat
    end function
    function c_object_open(region, name, type_name, mode, timeout_ms, object) bind(c, name="crossdock_object_open") &
        result(stat)
      import :: c_int, c_ptr, c_char, c_int64_t, c_object
      type(c_ptr), value :: region
      character(kind=c_char), intent(in) :: name(*), type_name(*)
      integer(c_int), value :: mode
      integer(c_int64_t), value :: timeout_ms
      type(c_object), intent(out) :: object
      integer(c_int) :: stat
    end function
    function c_object_find(region, name, info) bind(c, name="crossdock_object_find") result(stat)
      import :: c_int, c_ptr, c_char, c_object_info
      type(c_ptr), value :: region
      character(kind=c_char), intent(in) :: name(*)
      type(c_object_info), intent(out) :: info
      integer(c_int) :: stat
    end function
    function c_object_remove(region, name) bind(c, name="crossdock_object_remove") result(stat)
      import :: c_int, c_ptr, c_char
      type(c_ptr), value :: region
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int) :: stat
    end function
    function c_handle_save(region, address, handle) bind(c, name="crossdock_handle_save") result(stat)
      import :: c_int, c_ptr, crossdock_handle
      type(c_ptr), value :: region, address
      type(crossdock_handle), intent(out) :: handle
      integer(c_int) :: stat
    end function
    function c_handle_load(region, handle, type, object) bind(c, name="crossdock_handle_load") result(stat)
      import :: c_int, c_ptr, c_type, c_object, crossdock_handle
      type(c_ptr), value :: region
      type(crossdock_handle), value :: handle
      type(c_type), intent(in) :: type
      type(c_object), intent(out) :: object
      integer(c_int) :: stat
    end function
    function c_vector_resize(region, vector, element_size, elements) bind(c, name="crossdock_vector_resize") result(stat)
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: region, vector
      integer(c_int64_t), value :: element_size, elements
      integer(c_int) :: stat
    end function
    function c_vector_reserve(region, vector, element_size, elements) bind(c, name="crossdock_vector_reserve") &
        result(stat)
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: region, vector
      integer(c_int64_t), value :: element_size, elements
      integer(c_int) :: stat
    end function
    function c_vector_view(region, vector, element_size, data, elements) bind(c, name="crossdock_vector_view") &
        result(stat)
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: region, vector
      integer(c_int64_t), value :: element_size
      type(c_ptr), intent(out) :: data
      integer(c_int64_t), intent(out) :: elements
      integer(c_int) :: stat
    end function
    function c_string_assign(region, string, bytes, length) bind(c, name="crossdock_string_assign") result(stat)
      import :: c_int, c_ptr, c_char, c_int64_t
      type(c_ptr), value :: region, string
      character(kind=c_char), intent(in) :: bytes(*)
      integer(c_int64_t), value :: length
      integer(c_int) :: stat
    end function
    function c_ndarray_open(region, name, element_type, order, rank, shape, mode, timeout_ms, array) &
        bind(c, name="crossdock_ndarray_open") result(stat)
      import :: c_int, c_ptr, c_char, c_int32_t, c_int64_t
      type(c_ptr), value :: region
      character(kind=c_char), intent(in) :: name(*), element_type(*)
      integer(c_int), value :: order, mode
      integer(c_int32_t), value :: rank
      integer(c_int64_t), intent(in) :: shape(*)
      integer(c_int64_t), value :: timeout_ms
      type(c_ptr), intent(out) :: array
      integer(c_int) :: stat
    end function
    function c_ndarray_reshape(region, array, element_size, order, rank, shape) &
        bind(c, name="crossdock_ndarray_reshape") result(stat)
      import :: c_int, c_ptr, c_int32_t, c_int64_t
      type(c_ptr), value :: region, array
      integer(c_int64_t), value :: element_size
      integer(c_int), value :: order
      integer(c_int32_t), value :: rank
      integer(c_int64_t), intent(in) :: shape(*)
      integer(c_int) :: stat
    end function
    function c_ndarray_view(region, array, element_size, data, order, rank, shape) &
        bind(c, name="crossdock_ndarray_view") result(stat)
      import :: c_int, c_ptr, c_int32_t, c_int64_t
      type(c_ptr), value :: region, array
      integer(c_int64_t), value :: element_size
      type(c_ptr), intent(out) :: data
      integer(c_int), intent(out) :: order
      integer(c_int32_t), intent(out) :: rank
      integer(c_int64_t), intent(out) :: shape(*)
      integer(c_int) :: stat
    end function
    function c_type_layout(name, size, align) bind(c, name="crossdock_type_layout") result(stat)
      import :: c_int, c_char, c_int32_t, c_int64_t
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), intent(out) :: size
      integer(c_int32_t), intent(out) :: align
      integer(c_int) :: stat
    end function
    function c_port_open(session, name, end, options, timeout_ms, port) bind(c, name="crossdock_port_open") result(stat)
      import :: c_int, c_ptr, c_char, c_int64_t, c_port_options
      type(c_ptr), value :: session
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), value :: end
      type(c_port_options), intent(in) :: options
      integer(c_int64_t), value :: timeout_ms
      type(c_ptr), intent(out) :: port
      integer(c_int) :: stat
    end function
    function c_port_unref(port) bind(c, name="crossdock_port_unref") result(stat)
      import :: c_int, c_ptr
      type(c_ptr), value :: port
      integer(c_int) :: stat
    end function
    function c_port_close(port) bind(c, name="crossdock_port_close") result(stat)
      import :: c_int, c_ptr
      type(c_ptr), value :: port
      integer(c_int) :: stat
    end function
    function c_port_remove(session, name) bind(c, name="crossdock_port_remove") result(stat)
      import :: c_int, c_ptr, c_char
      type(c_ptr), value :: session
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int) :: stat
    end function
    function c_port_wait_peer(port, timeout_ms) bind(c, name="crossdock_port_wait_peer") result(stat)
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: port
      integer(c_int64_t), value :: timeout_ms
      integer(c_int) :: stat
    end function
    function c_port_send(port, message, bytes, timeout_ms) bind(c, name="crossdock_port_send") result(stat)
      import :: c_int, c_ptr, c_int64_t, crossdock_message
      type(c_ptr), value :: port
      type(crossdock_message), intent(in) :: message
      integer(c_int64_t), value :: bytes, timeout_ms
      integer(c_int) :: stat
    end function
    function c_port_reclaim(port, timeout_ms, handle) bind(c, name="crossdock_port_reclaim") result(stat)
      import :: c_int, c_ptr, c_int64_t, crossdock_handle
      type(c_ptr), value :: port
      integer(c_int64_t), value :: timeout_ms
      type(crossdock_handle), intent(out) :: handle
      integer(c_int) :: stat
    end function
    function c_port_receive(port, timeout_ms, message) bind(c, name="crossdock_port_receive") result(stat)
      import :: c_int, c_ptr, c_int64_t, crossdock_message
      type(c_ptr), value :: port
      integer(c_int64_t), value :: timeout_ms
      type(crossdock_message), intent(out) :: message
      integer(c_int) :: stat
    end function
    function c_port_release(port, message) bind(c, name="crossdock_port_release") result(stat)
      import :: c_int, c_ptr, crossdock_message
      type(c_ptr), value :: port
      type(crossdock_message), intent(in) :: message
      integer(c_int) :: stat
    end function
    function c_port_descriptor(port, descriptor) bind(c, name="crossdock_port_descriptor") result(stat)
      import :: c_int, c_ptr
      type(c_ptr), value :: port
      integer(c_int), intent(out) :: descriptor
      integer(c_int) :: stat
    end function
    function c_port_arm(port, ready) bind(c, name="crossdock_port_arm") result(stat)
      import :: c_int, c_ptr
      type(c_ptr), value :: port
      integer(c_int), intent(out) :: ready
      integer(c_int) :: stat
    end function
    function c_port_disarm(port) bind(c, name="crossdock_port_disarm") result(stat)
      import :: c_int, c_ptr
      type(c_ptr), value :: port
      integer(c_int) :: stat
    end function
    function c_port_statistics_get(port, statistics) bind(c, name="crossdock_port_statistics_get") result(stat)
      import :: c_int, c_ptr, crossdock_port_statistics
      type(c_ptr), value :: port
      type(crossdock_port_statistics), intent(out) :: statistics
      integer(c_int) :: stat
    end function
    function c_port_note_copied(port, bytes) bind(c, name="crossdock_port_note_copied") result(stat)
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: port
      integer(c_int64_t), value :: bytes
      integer(c_int) :: stat
    end function
  end interface
end module
