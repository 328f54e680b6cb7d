! The declarations of crossdock.h for series in Fortran, for the module `crossdock_series`. Programs use the module
! `crossdock` and not this one.
! SPDX-License-Identifier: Apache-2.0
module crossdock_series_c
  use, intrinsic :: iso_c_binding
  use crossdock_c, only: CROSSDOCK_RANK_MAX, CROSSDOCK_NAME_MAX, CROSSDOCK_TYPE_NAME_MAX
  implicit none
  private :: c_ptr, c_char, c_int, c_int32_t, c_int64_t, c_size_t
  public

  enum, bind(c)
    enumerator :: CROSSDOCK_VALUE_I64 = 0
    enumerator :: CROSSDOCK_VALUE_U64 = 1
    enumerator :: CROSSDOCK_VALUE_F64 = 2
    enumerator :: CROSSDOCK_VALUE_TEXT = 3
  end enum
  enum, bind(c)
    enumerator :: CROSSDOCK_FULL_WITHHOLD = 0
    enumerator :: CROSSDOCK_FULL_FAIL = 1
    enumerator :: CROSSDOCK_FULL_TAKE_BACK = 2
  end enum
  enum, bind(c)
    enumerator :: CROSSDOCK_PAGES_STAY = 0
    enumerator :: CROSSDOCK_PAGES_MAY_MOVE = 1
  end enum
  enum, bind(c)
    enumerator :: CROSSDOCK_DETECT_AUTO = 0
    enumerator :: CROSSDOCK_DETECT_HINTS = 1
    enumerator :: CROSSDOCK_DETECT_PRIVATE_COPIES = 2
    enumerator :: CROSSDOCK_DETECT_WRITE_PROTECT = 3
    enumerator :: CROSSDOCK_DETECT_COPY_ALL = 4
    enumerator :: CROSSDOCK_DETECT_COMPARE = 5
  end enum
  enum, bind(c)
    enumerator :: CROSSDOCK_SERIES_LIVE = 0
    enumerator :: CROSSDOCK_SERIES_ENDED = 1
    enumerator :: CROSSDOCK_SERIES_DIED = 2
  end enum

  !> A value of an attribute or a constant: its kind, and the bits of a number or a text.
  type, bind(c) :: c_value
    integer(c_int32_t) :: kind = 0
    integer(c_int32_t) :: reserved = 0
    integer(c_int64_t) :: number = 0
    character(kind=c_char) :: text(64) = c_null_char
  end type

  type, bind(c) :: c_attribute
    type(c_ptr) :: name = c_null_ptr
    type(c_value) :: value
  end type

  type, bind(c) :: c_variable
    type(c_ptr) :: name = c_null_ptr
    type(c_ptr) :: type = c_null_ptr
    integer(c_int32_t) :: dimensions = 0
    integer(c_int32_t) :: order = 0
    integer(c_int64_t) :: shape(CROSSDOCK_RANK_MAX) = 0
    integer(c_int64_t) :: max_shape(CROSSDOCK_RANK_MAX) = 0
    type(c_ptr) :: constants = c_null_ptr
    integer(c_size_t) :: constant_count = 0
  end type

  type, bind(c) :: c_series_options
    integer(c_int64_t) :: capacity = 0
    integer(c_int32_t) :: chunk = 0
    integer(c_int32_t) :: keep = 0
    integer(c_int32_t) :: max_observers = 64
    integer(c_int32_t) :: full = 0
    integer(c_int32_t) :: detect = 0
    integer(c_int32_t) :: pages = 0
  end type

  type, bind(c) :: c_variable_info
    character(kind=c_char) :: name(CROSSDOCK_NAME_MAX + 1)
    character(kind=c_char) :: type(CROSSDOCK_TYPE_NAME_MAX + 1)
    integer(c_int32_t) :: dimensions
    integer(c_int32_t) :: order
    integer(c_int64_t) :: element_size
    integer(c_int64_t) :: max_shape(CROSSDOCK_RANK_MAX)
    integer(c_int32_t) :: constant_count
    integer(c_int32_t) :: reserved
  end type

  type, bind(c) :: crossdock_publisher_statistics
    integer(c_int64_t) :: versions, chunk, withheld, slots_used, slots_reserved, copied, shared
    integer(c_int64_t) :: last_ns, longest_ns, no_space, taken_back, method
  end type

  !> A range of bytes of one variable in which two versions may differ. `variable` and `from` count from 0.
  type, bind(c) :: crossdock_change
    integer(c_int32_t) :: variable = 0
    integer(c_int32_t) :: reserved = 0
    integer(c_int64_t) :: from = 0
    integer(c_int64_t) :: bytes = 0
  end type

  interface
    function c_publisher_open(session, name, variables, variable_count, attributes, attribute_count, options, publisher) &
      bind(c, name="crossdock_publisher_open") result(stat)
      import :: c_int, c_ptr, c_char, c_variable, c_size_t, c_attribute, c_series_options
      type(c_ptr), value :: session
      character(kind=c_char), intent(in) :: name(*)
      type(c_variable), intent(in) :: variables(*)
      integer(c_size_t), value :: variable_count
      type(c_attribute), intent(in) :: attributes(*)
      integer(c_size_t), value :: attribute_count
      type(c_series_options), intent(in) :: options
      type(c_ptr), intent(out) :: publisher
      integer(c_int) :: stat
    end function
    function c_publisher_unref(publisher) &
      bind(c, name="crossdock_publisher_unref") result(stat)
      import :: c_int, c_ptr
      type(c_ptr), value :: publisher
      integer(c_int) :: stat
    end function
    function c_publisher_memory(publisher, variable, data, bytes) &
      bind(c, name="crossdock_publisher_memory") result(stat)
      import :: c_int, c_ptr, c_char, c_int64_t
      type(c_ptr), value :: publisher
      character(kind=c_char), intent(in) :: variable(*)
      type(c_ptr), intent(out) :: data
      integer(c_int64_t), intent(out) :: bytes
      integer(c_int) :: stat
    end function
    function c_publisher_shape(publisher, variable, dimensions, shape) &
      bind(c, name="crossdock_publisher_shape") result(stat)
      import :: c_int, c_ptr, c_char, c_int32_t, c_int64_t
      type(c_ptr), value :: publisher
      character(kind=c_char), intent(in) :: variable(*)
      integer(c_int32_t), intent(out) :: dimensions
      integer(c_int64_t), intent(out) :: shape(*)
      integer(c_int) :: stat
    end function
    function c_publisher_resize(publisher, variable, shape, dimensions) &
      bind(c, name="crossdock_publisher_resize") result(stat)
      import :: c_int, c_ptr, c_char, c_int64_t, c_int32_t
      type(c_ptr), value :: publisher
      character(kind=c_char), intent(in) :: variable(*)
      integer(c_int64_t), intent(in) :: shape(*)
      integer(c_int32_t), value :: dimensions
      integer(c_int) :: stat
    end function
    function c_publisher_touched(publisher, variable, from, bytes) &
      bind(c, name="crossdock_publisher_touched") result(stat)
      import :: c_int, c_ptr, c_char, c_int64_t
      type(c_ptr), value :: publisher
      character(kind=c_char), intent(in) :: variable(*)
      integer(c_int64_t), value :: from
      integer(c_int64_t), value :: bytes
      integer(c_int) :: stat
    end function
    function c_publisher_publish(publisher, attributes, attribute_count, sequence) &
      bind(c, name="crossdock_publisher_publish") result(stat)
      import :: c_int, c_ptr, c_attribute, c_size_t, c_int64_t
      type(c_ptr), value :: publisher
      type(c_attribute), intent(in) :: attributes(*)
      integer(c_size_t), value :: attribute_count
      integer(c_int64_t), intent(out) :: sequence
      integer(c_int) :: stat
    end function
    function c_publisher_begin(publisher) &
      bind(c, name="crossdock_publisher_begin") result(stat)
      import :: c_int, c_ptr
      type(c_ptr), value :: publisher
      integer(c_int) :: stat
    end function
    function c_publisher_abandon(publisher) &
      bind(c, name="crossdock_publisher_abandon") result(stat)
      import :: c_int, c_ptr
      type(c_ptr), value :: publisher
      integer(c_int) :: stat
    end function
    function c_publisher_end(publisher) &
      bind(c, name="crossdock_publisher_end") result(stat)
      import :: c_int, c_ptr
      type(c_ptr), value :: publisher
      integer(c_int) :: stat
    end function
    function c_publisher_statistics(publisher, statistics) &
      bind(c, name="crossdock_publisher_statistics_get") result(stat)
      import :: c_int, c_ptr, crossdock_publisher_statistics
      type(c_ptr), value :: publisher
      type(crossdock_publisher_statistics), intent(out) :: statistics
      integer(c_int) :: stat
    end function
    function c_series_remove(session, name) &
      bind(c, name="crossdock_series_remove") result(stat)
      import :: c_int, c_ptr, c_char
      type(c_ptr), value :: session
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int) :: stat
    end function
    function c_observer_open(session, name, timeout_ms, observer) &
      bind(c, name="crossdock_observer_open") result(stat)
      import :: c_int, c_ptr, c_char, c_int64_t
      type(c_ptr), value :: session
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: timeout_ms
      type(c_ptr), intent(out) :: observer
      integer(c_int) :: stat
    end function
    function c_observer_open_former(session, name, timeout_ms, observer) &
      bind(c, name="crossdock_observer_open_former") result(stat)
      import :: c_int, c_ptr, c_char, c_int64_t
      type(c_ptr), value :: session
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: timeout_ms
      type(c_ptr), intent(out) :: observer
      integer(c_int) :: stat
    end function
    function c_observer_unref(observer) &
      bind(c, name="crossdock_observer_unref") result(stat)
      import :: c_int, c_ptr
      type(c_ptr), value :: observer
      integer(c_int) :: stat
    end function
    function c_observer_id(observer, id) &
      bind(c, name="crossdock_observer_id") result(stat)
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: observer
      integer(c_int64_t), intent(out) :: id
      integer(c_int) :: stat
    end function
    function c_observer_state(observer, state) &
      bind(c, name="crossdock_observer_state") result(stat)
      import :: c_int, c_ptr
      type(c_ptr), value :: observer
      integer(c_int), intent(out) :: state
      integer(c_int) :: stat
    end function
    function c_observer_constant(observer, variable, name, value) &
      bind(c, name="crossdock_observer_constant") result(stat)
      import :: c_int, c_ptr, c_char, c_value
      type(c_ptr), value :: observer
      character(kind=c_char), intent(in) :: variable(*)
      character(kind=c_char), intent(in) :: name(*)
      type(c_value), intent(out) :: value
      integer(c_int) :: stat
    end function
    function c_observer_latest(observer, version) &
      bind(c, name="crossdock_observer_latest") result(stat)
      import :: c_int, c_ptr
      type(c_ptr), value :: observer
      type(c_ptr), intent(out) :: version
      integer(c_int) :: stat
    end function
    function c_observer_next(observer, timeout_ms, version) &
      bind(c, name="crossdock_observer_next") result(stat)
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: observer
      integer(c_int64_t), value :: timeout_ms
      type(c_ptr), intent(out) :: version
      integer(c_int) :: stat
    end function
    function c_observer_each(observer, timeout_ms, version) &
      bind(c, name="crossdock_observer_each") result(stat)
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: observer
      integer(c_int64_t), value :: timeout_ms
      type(c_ptr), intent(out) :: version
      integer(c_int) :: stat
    end function
    function c_version_missed(version, missed) &
      bind(c, name="crossdock_series_version_missed") result(stat)
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: version
      integer(c_int64_t), intent(out) :: missed
      integer(c_int) :: stat
    end function
    function c_observer_at(observer, sequence, timeout_ms, version) &
      bind(c, name="crossdock_observer_at") result(stat)
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: observer
      integer(c_int64_t), value :: sequence
      integer(c_int64_t), value :: timeout_ms
      type(c_ptr), intent(out) :: version
      integer(c_int) :: stat
    end function
    function c_version_unref(version) &
      bind(c, name="crossdock_series_version_unref") result(stat)
      import :: c_int, c_ptr
      type(c_ptr), value :: version
      integer(c_int) :: stat
    end function
    function c_version_sequence(version, sequence) &
      bind(c, name="crossdock_series_version_sequence") result(stat)
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: version
      integer(c_int64_t), intent(out) :: sequence
      integer(c_int) :: stat
    end function
    function c_version_time(version, time_ns) &
      bind(c, name="crossdock_series_version_time") result(stat)
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: version
      integer(c_int64_t), intent(out) :: time_ns
      integer(c_int) :: stat
    end function
    function c_version_valid(version, valid) &
      bind(c, name="crossdock_series_version_valid") result(stat)
      import :: c_int, c_ptr
      type(c_ptr), value :: version
      integer(c_int), intent(out) :: valid
      integer(c_int) :: stat
    end function
    function c_version_variable(version, variable, info) &
      bind(c, name="crossdock_series_version_variable") result(stat)
      import :: c_int, c_ptr, c_char, c_variable_info
      type(c_ptr), value :: version
      character(kind=c_char), intent(in) :: variable(*)
      type(c_variable_info), intent(out) :: info
      integer(c_int) :: stat
    end function
    function c_version_data(version, variable, data, bytes) &
      bind(c, name="crossdock_series_version_data") result(stat)
      import :: c_int, c_ptr, c_char, c_int64_t
      type(c_ptr), value :: version
      character(kind=c_char), intent(in) :: variable(*)
      type(c_ptr), intent(out) :: data
      integer(c_int64_t), intent(out) :: bytes
      integer(c_int) :: stat
    end function
    function c_version_shape(version, variable, dimensions, shape) &
      bind(c, name="crossdock_series_version_shape") result(stat)
      import :: c_int, c_ptr, c_char, c_int32_t, c_int64_t
      type(c_ptr), value :: version
      character(kind=c_char), intent(in) :: variable(*)
      integer(c_int32_t), intent(out) :: dimensions
      integer(c_int64_t), intent(out) :: shape(*)
      integer(c_int) :: stat
    end function
    function c_version_attribute(version, name, value) &
      bind(c, name="crossdock_series_version_attribute") result(stat)
      import :: c_int, c_ptr, c_char, c_value
      type(c_ptr), value :: version
      character(kind=c_char), intent(in) :: name(*)
      type(c_value), intent(out) :: value
      integer(c_int) :: stat
    end function
    function c_version_refresh(version, remapped) &
      bind(c, name="crossdock_series_version_refresh") result(stat)
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: version
      integer(c_int64_t), intent(out) :: remapped
      integer(c_int) :: stat
    end function
    function c_version_diff(before, after, changes, room, count) &
      bind(c, name="crossdock_series_version_diff") result(stat)
      import :: c_int, c_ptr, crossdock_change, c_size_t
      type(c_ptr), value :: before
      type(c_ptr), value :: after
      type(crossdock_change), intent(inout) :: changes(*)
      integer(c_size_t), value :: room
      integer(c_size_t), intent(out) :: count
      integer(c_int) :: stat
    end function
  end interface
end module
