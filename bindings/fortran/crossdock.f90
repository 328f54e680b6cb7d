! The module that programs use. It contains sessions, regions, objects, handles and ports.
!
!   use crossdock
!   type(crossdock_session) :: session
!   type(crossdock_region) :: frames
!   type(crossdock_object) :: positions
!   real(real64), pointer :: x(:)
!   integer :: stat
!   call session%connect(stat)
!   call session%region('frames', frames, stat, size=1073741824_int64)
!   call frames%object('positions', 'vector<f64>', positions, stat)
!   call positions%resize(96000, stat)
!   call positions%view(x, stat)
!
! Every procedure returns a status in `stat`: CROSSDOCK_OK (0), or another status of crossdock.h. After a failure
! crossdock_error_message() names the object and the reason, and gives a hint. No procedure stops the program.
! crossdock.h describes the calls under the same names: their meaning, waits and errors. `timeout_ms`: 0 = do not wait,
! CROSSDOCK_WAIT = 60 s. Without `timeout_ms`, calls of ports wait 60 s, and calls of regions and objects do not wait.
! If a call stores a new reference in a variable that has one already, the former reference is given up first, as `free`
! does.
!
! SPDX-License-Identifier: Apache-2.0
module crossdock
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int32, int64
  use crossdock_c
  use crossdock_objects
  use crossdock_series
  use crossdock_series_c, only: c_series_remove
  implicit none
  private
  public :: crossdock_session, crossdock_region, crossdock_object, crossdock_port
  public :: crossdock_publisher, crossdock_observer, crossdock_version, crossdock_change
  public :: crossdock_publisher_statistics, CROSSDOCK_SERIES_LIVE
  public :: CROSSDOCK_FULL_WITHHOLD, CROSSDOCK_FULL_FAIL, CROSSDOCK_FULL_TAKE_BACK
  public :: CROSSDOCK_PAGES_STAY, CROSSDOCK_PAGES_MAY_MOVE, CROSSDOCK_DETECT_COMPARE
  public :: CROSSDOCK_SERIES_ENDED, CROSSDOCK_SERIES_DIED, CROSSDOCK_DETECT_AUTO, CROSSDOCK_DETECT_HINTS
  public :: CROSSDOCK_DETECT_PRIVATE_COPIES, CROSSDOCK_DETECT_WRITE_PROTECT, CROSSDOCK_DETECT_COPY_ALL
  public :: crossdock_handle, crossdock_message, crossdock_region_statistics, crossdock_port_statistics
  public :: crossdock_error_message, crossdock_status_name, crossdock_message_put, crossdock_message_bytes
  public :: crossdock_await_file
  public :: operator(==)
  public :: CROSSDOCK_OK, CROSSDOCK_NOT_YET, CROSSDOCK_TIMED_OUT, CROSSDOCK_CLOSED, CROSSDOCK_PEER_DIED
  public :: CROSSDOCK_NOT_FOUND, CROSSDOCK_EXISTS, CROSSDOCK_WRONG_TYPE, CROSSDOCK_INVALID, CROSSDOCK_BAD_HANDLE
  public :: CROSSDOCK_DENIED, CROSSDOCK_NO_SPACE, CROSSDOCK_BUSY, CROSSDOCK_CORRUPT, CROSSDOCK_DISCONNECTED
  public :: CROSSDOCK_INCOMPATIBLE, CROSSDOCK_SYSTEM
  public :: CROSSDOCK_CREATE_ONLY, CROSSDOCK_OPEN_ONLY, CROSSDOCK_OPEN_OR_CREATE, CROSSDOCK_RECREATE
  public :: CROSSDOCK_ORDER_C, CROSSDOCK_ORDER_FORTRAN, CROSSDOCK_PRODUCER, CROSSDOCK_CONSUMER
  public :: CROSSDOCK_ONE_TO_ONE, CROSSDOCK_FAN_OUT, CROSSDOCK_FAN_IN, CROSSDOCK_WORK_QUEUE, &
            CROSSDOCK_ANY_PATTERN
  public :: CROSSDOCK_NO_WAIT, CROSSDOCK_WAIT, CROSSDOCK_INLINE_MAX, CROSSDOCK_RANK_MAX

  !> One connection to the node daemon. `free` ends the connection. A copy of the variable is the same reference.
  type :: crossdock_session
    type(c_ptr) :: reference = c_null_ptr
  contains
    procedure :: connect => session_connect
    procedure :: region => session_region
    procedure :: port => session_port
    procedure :: load => session_load
    procedure :: copy_region => session_copy_region
    procedure :: move_region => session_move_region
    procedure :: remove_region => session_remove_region
    procedure :: remove_port => session_remove_port
    procedure :: publisher => session_publisher
    procedure :: observe => session_observe
    procedure :: remove_series => session_remove_series
    generic :: progress => progress_32, progress_64
    procedure, private :: progress_32 => session_progress_32, progress_64 => session_progress_64
    procedure :: free => session_free
  end type

  !> A mapped region. Its pointers and objects are valid until `free`.
  type :: crossdock_region
    type(c_ptr) :: reference = c_null_ptr
  contains
    procedure :: object => region_object
    generic :: ndarray => ndarray_32, ndarray_64
    procedure, private :: ndarray_32 => region_ndarray_32, ndarray_64 => region_ndarray_64
    procedure :: load => region_load
    procedure :: remove => region_remove
    procedure :: id => region_id
    procedure :: statistics => region_statistics
    procedure :: free => region_free
  end type

  !> One end of a port. `free` closes it.
  type :: crossdock_port
    type(c_ptr) :: reference = c_null_ptr
  contains
    procedure :: send => port_send
    procedure :: reclaim => port_reclaim
    procedure :: receive => port_receive
    procedure :: release => port_release
    procedure :: wait_peer => port_wait_peer
    procedure :: descriptor => port_descriptor
    procedure :: arm => port_arm
    procedure :: disarm => port_disarm
    procedure :: statistics => port_statistics
    procedure :: note_copied => port_note_copied
    procedure :: close => port_close
    procedure :: free => port_free
  end type

  interface operator(==)
    module procedure same_handle
  end interface

contains

  !> The message of the last failed call of this thread.
  function crossdock_error_message() result(message)
    character(:), allocatable :: message
    message = text_of(c_error_message())
  end function

  !> The name of a status without its prefix, such as "NO_SPACE".
  function crossdock_status_name(stat) result(name)
    integer, intent(in) :: stat
    character(:), allocatable :: name
    name = text_of(c_status_name(int(stat, c_int)))
  end function

  !> Waits until the file is published, if it lies in a managed directory that this task consumes. For every other path
  !> it returns immediately. Afterwards open the file as usual. CROSSDOCK_NOT_FOUND: the producers have ended and did
  !> not publish the file. CROSSDOCK_TIMED_OUT: the time limit of the directory has passed.
  subroutine crossdock_await_file(path, stat)
    character(*), intent(in) :: path
    integer, intent(out) :: stat
    stat = c_file_await(trim(path) // c_null_char)
  end subroutine

  elemental function same_handle(a, b) result(same)
    type(crossdock_handle), intent(in) :: a, b
    logical :: same
    same = a%segment == b%segment .and. a%offset == b%offset
  end function

  !> Puts text or bytes into a message, at most CROSSDOCK_INLINE_MAX bytes.
  subroutine crossdock_message_put(message, bytes, stat)
    type(crossdock_message), intent(inout) :: message
    character(*), intent(in) :: bytes
    integer, intent(out) :: stat
    if (len(bytes) > CROSSDOCK_INLINE_MAX) then
      call raise(stat, CROSSDOCK_INVALID, 'a message carries at most 24 bytes inline; send a handle instead')
      return
    end if
    stat = CROSSDOCK_OK
    message%inline_length = len(bytes)
    message%inline_bytes(1:len(bytes)) = transfer(bytes, message%inline_bytes(1:len(bytes)))
  end subroutine

  !> The inline bytes of a message.
  function crossdock_message_bytes(message) result(bytes)
    type(crossdock_message), intent(in) :: message
    character(:), allocatable :: bytes
    allocate (character(message%inline_length) :: bytes)
    bytes = transfer(message%inline_bytes(1:message%inline_length), bytes)
  end function

  integer(int64) function given(timeout_ms, otherwise)
    integer, intent(in), optional :: timeout_ms
    integer(int64), intent(in) :: otherwise
    given = otherwise
    if (present(timeout_ms)) given = timeout_ms
  end function

  integer(c_int) function mode_or(mode)
    integer, intent(in), optional :: mode
    mode_or = CROSSDOCK_OPEN_OR_CREATE
    if (present(mode)) mode_or = int(mode, c_int)
  end function

  subroutine session_connect(session, stat, task, socket, private_daemon)
    class(crossdock_session), intent(inout) :: session
    integer, intent(out) :: stat
    character(*), intent(in), optional :: task, socket
    logical, intent(in), optional :: private_daemon
    type(c_connect_options) :: options
    character(:), allocatable, target :: task_text, socket_text
    type(c_ptr) :: reference
    if (present(task)) then
      task_text = task // c_null_char
      options%task = c_loc(task_text)
    end if
    if (present(socket)) then
      socket_text = socket // c_null_char
      options%socket = c_loc(socket_text)
    end if
    if (present(private_daemon)) options%private_daemon = merge(1, 0, private_daemon)
    stat = c_session_connect(options, reference)
    if (stat /= CROSSDOCK_OK) return
    if (c_associated(session%reference)) call session%free()
    session%reference = reference
  end subroutine

  !> Opens or creates a region. `size` is the capacity in bytes of a region that is created; memory is taken when it is
  !> used. If `size` is not given, an existing region may have any size, and a new region gets 1 GiB. CROSSDOCK_INVALID:
  !> the existing region is smaller than `size`.
  subroutine session_region(session, name, region, stat, mode, size, timeout_ms)
    class(crossdock_session), intent(in) :: session
    character(*), intent(in) :: name
    type(crossdock_region), intent(inout) :: region
    integer, intent(out) :: stat
    integer, intent(in), optional :: mode, timeout_ms
    integer(int64), intent(in), optional :: size
    integer(int64) :: bytes
    type(c_ptr) :: reference
    bytes = CROSSDOCK_ANY_SIZE
    if (present(size)) bytes = size
    stat = c_region_open(session%reference, name // c_null_char, mode_or(mode), bytes, given(timeout_ms, 0_int64), &
                         reference)
    if (stat == CROSSDOCK_OK) call hold_region(region, reference)
  end subroutine

  !> Opens one end of a port; `end` is CROSSDOCK_PRODUCER or CROSSDOCK_CONSUMER. If an option is not given, an existing
  !> port keeps its own, from the task or workflow file that made it; a new port is one-to-one with 8 messages. A
  !> persistent port stays after the run in which it was made.
  subroutine session_port(session, name, end, port, stat, pattern, capacity, timeout_ms, persistent)
    class(crossdock_session), intent(in) :: session
    character(*), intent(in) :: name
    integer, intent(in) :: end
    type(crossdock_port), intent(inout) :: port
    integer, intent(out) :: stat
    integer, intent(in), optional :: pattern, capacity, timeout_ms
    logical, intent(in), optional :: persistent
    type(c_port_options) :: options
    type(c_ptr) :: reference
    if (present(pattern)) options%pattern = pattern
    if (present(capacity)) options%capacity = capacity
    if (present(persistent)) options%persistent = merge(1, 0, persistent)
    stat = c_port_open(session%reference, name // c_null_char, int(end, c_int), options, given(timeout_ms, 0_int64), &
                       reference)
    if (stat /= CROSSDOCK_OK) return
    if (c_associated(port%reference)) call port%free()
    port%reference = reference
  end subroutine

  !> Finds the object of a handle in any region. `region` gets a reference to the object's region.
  subroutine session_load(session, handle, type_name, region, object, stat)
    class(crossdock_session), intent(in) :: session
    type(crossdock_handle), intent(in) :: handle
    character(*), intent(in) :: type_name
    type(crossdock_region), intent(inout) :: region
    type(crossdock_object), intent(inout) :: object
    integer, intent(out) :: stat
    character(:), allocatable, target :: name
    type(c_type) :: ty
    type(c_ptr) :: reference
    type(c_object) :: found
    name = type_name // c_null_char
    ty%name = c_loc(name)
    stat = c_session_load(session%reference, handle, ty, reference, found)
    if (stat /= CROSSDOCK_OK) return
    call hold_region(region, reference)
    object = made(reference, type_name, found)
  end subroutine

  !> Copies the region `name` of any node of the site to this node, under the name `copy`, and opens the copy. The copy
  !> has the bytes of one moment in which no task had the region open. Handles that were saved in the region are valid in
  !> the copy. Within the timeout (60 s if it is not given) the call waits for the region to be made, and for all tasks to
  !> close it. After an error there is no copy.
  subroutine session_copy_region(session, name, copy, region, stat, timeout_ms)
    class(crossdock_session), intent(in) :: session
    character(*), intent(in) :: name, copy
    type(crossdock_region), intent(inout) :: region
    integer, intent(out) :: stat
    integer, intent(in), optional :: timeout_ms
    type(c_ptr) :: reference
    stat = c_region_copy(session%reference, name // c_null_char, copy // c_null_char, given(timeout_ms, -1_int64), &
                         reference)
    if (stat == CROSSDOCK_OK) call hold_region(region, reference)
  end subroutine

  !> Moves the region `name` of any node of the site to this node, and opens it. The region keeps its name, and its
  !> handles stay valid. A region that is on this node already is only opened. After an error the region is where it was.
  subroutine session_move_region(session, name, region, stat, timeout_ms)
    class(crossdock_session), intent(in) :: session
    character(*), intent(in) :: name
    type(crossdock_region), intent(inout) :: region
    integer, intent(out) :: stat
    integer, intent(in), optional :: timeout_ms
    type(c_ptr) :: reference
    stat = c_region_move(session%reference, name // c_null_char, given(timeout_ms, -1_int64), reference)
    if (stat == CROSSDOCK_OK) call hold_region(region, reference)
  end subroutine

  subroutine session_remove_region(session, name, stat)
    class(crossdock_session), intent(in) :: session
    character(*), intent(in) :: name
    integer, intent(out) :: stat
    stat = c_region_remove(session%reference, name // c_null_char)
  end subroutine

  subroutine session_remove_port(session, name, stat)
    class(crossdock_session), intent(in) :: session
    character(*), intent(in) :: name
    integer, intent(out) :: stat
    stat = c_port_remove(session%reference, name // c_null_char)
  end subroutine

  !> Begins to publish the declared variables. After this call they can be viewed. Their pages stay where they are, so
  !> that their memory can be registered (RDMA, io_uring, a pending MPI_Irecv), unless pages=CROSSDOCK_PAGES_MAY_MOVE.
  subroutine session_publisher(session, name, publisher, stat, keep, capacity, chunk, max_observers, full, detect, pages)
    class(crossdock_session), intent(in) :: session
    character(*), intent(in) :: name
    type(crossdock_publisher), intent(inout) :: publisher
    integer, intent(out) :: stat
    integer, intent(in), optional :: keep, chunk, max_observers, full, detect, pages
    integer(int64), intent(in), optional :: capacity
    call open_publisher(session%reference, name, publisher, stat, keep, capacity, chunk, max_observers, full, detect, pages)
  end subroutine

  !> Observes the series of this name in the current run. With timeout_ms it waits for the series. If `former` is true,
  !> it takes the latest series of this name from any run, even one that has ended.
  subroutine session_observe(session, name, observer, stat, timeout_ms, former)
    class(crossdock_session), intent(in) :: session
    character(*), intent(in) :: name
    type(crossdock_observer), intent(inout) :: observer
    integer, intent(out) :: stat
    integer, intent(in), optional :: timeout_ms
    logical, intent(in), optional :: former
    call open_observer(session%reference, name, observer, stat, given(timeout_ms, 0_int64), former)
  end subroutine

  subroutine session_remove_series(session, name, stat)
    class(crossdock_session), intent(in) :: session
    character(*), intent(in) :: name
    integer, intent(out) :: stat
    stat = c_series_remove(session%reference, name // c_null_char)
  end subroutine

  !> Reports how far this task is: `done` of `of` steps. `crossdock ps`, `top` and the web page show the report. An
  !> `of` of 0 withdraws the report. The call never waits, so it can be made in every iteration. INVALID: `done` is more
  !> than `of`, or one of the two is negative.
  subroutine session_progress_64(session, done, of, stat)
    class(crossdock_session), intent(in) :: session
    integer(int64), intent(in) :: done, of
    integer, intent(out) :: stat
    if (done < 0 .or. of < 0) then
      ! Negative numbers are an error. This call passes a `done` that is larger than `of`, so that the library returns
      ! the error INVALID.
      stat = c_session_progress(session%reference, 1_int64, 0_int64)
      return
    end if
    stat = c_session_progress(session%reference, done, of)
  end subroutine

  subroutine session_progress_32(session, done, of, stat)
    class(crossdock_session), intent(in) :: session
    integer(int32), intent(in) :: done, of
    integer, intent(out) :: stat
    call session_progress_64(session, int(done, int64), int(of, int64), stat)
  end subroutine

  subroutine session_free(session)
    class(crossdock_session), intent(inout) :: session
    integer :: ignored
    ignored = c_session_unref(session%reference)
    session%reference = c_null_ptr
  end subroutine

  function made(region, type_name, found) result(object)
    type(c_ptr), intent(in) :: region
    character(*), intent(in) :: type_name
    type(c_object), intent(in) :: found
    type(crossdock_object) :: object
    object%handle = found%handle
    object%address = found%address
    object%size = found%size
    object%created = found%created /= 0
    object%type_name = type_name
    object%region = region
  end function

  !> Finds or creates a named object of a type (f64, f32[512], {i32,f64}, vector<f64>, string ..). A new object is zero
  !> or empty.
  subroutine region_object(region, name, type_name, object, stat, mode, timeout_ms)
    class(crossdock_region), intent(in) :: region
    character(*), intent(in) :: name, type_name
    type(crossdock_object), intent(inout) :: object
    integer, intent(out) :: stat
    integer, intent(in), optional :: mode, timeout_ms
    type(c_object) :: found
    stat = c_object_open(region%reference, name // c_null_char, type_name // c_null_char, mode_or(mode), &
                         given(timeout_ms, 0_int64), found)
    if (stat == CROSSDOCK_OK) object = made(region%reference, type_name, found)
  end subroutine

  !> Finds or creates an ndarray of an element type. A new ndarray gets the shape, in Fortran order unless `order` is
  !> given.
  subroutine region_ndarray_64(region, name, element_type, shape, object, stat, order, mode, timeout_ms)
    class(crossdock_region), intent(in) :: region
    character(*), intent(in) :: name, element_type
    integer(int64), intent(in) :: shape(:)
    type(crossdock_object), intent(inout) :: object
    integer, intent(out) :: stat
    integer, intent(in), optional :: order, mode, timeout_ms
    integer(c_int) :: its_order
    type(c_object) :: found
    its_order = CROSSDOCK_ORDER_FORTRAN
    if (present(order)) its_order = int(order, c_int)
    stat = c_ndarray_open(region%reference, name // c_null_char, element_type // c_null_char, its_order, &
                          size(shape, kind=int32), shape, mode_or(mode), given(timeout_ms, 0_int64), found%address)
    if (stat /= CROSSDOCK_OK) return
    stat = c_handle_save(region%reference, found%address, found%handle)
    found%size = 128
    if (stat == CROSSDOCK_OK) object = made(region%reference, 'ndarray<' // element_type // '>', found)
  end subroutine

  subroutine region_ndarray_32(region, name, element_type, shape, object, stat, order, mode, timeout_ms)
    class(crossdock_region), intent(in) :: region
    character(*), intent(in) :: name, element_type
    integer(int32), intent(in) :: shape(:)
    type(crossdock_object), intent(inout) :: object
    integer, intent(out) :: stat
    integer, intent(in), optional :: order, mode, timeout_ms
    call region_ndarray_64(region, name, element_type, int(shape, int64), object, stat, order, mode, timeout_ms)
  end subroutine

  !> Finds the object that a handle names in this region. BAD_HANDLE: the handle names no object of this region.
  !> WRONG_TYPE: the object has another type.
  subroutine region_load(region, handle, type_name, object, stat)
    class(crossdock_region), intent(in) :: region
    type(crossdock_handle), intent(in) :: handle
    character(*), intent(in) :: type_name
    type(crossdock_object), intent(inout) :: object
    integer, intent(out) :: stat
    character(:), allocatable, target :: name
    type(c_type) :: ty
    type(c_object) :: found
    name = type_name // c_null_char
    ty%name = c_loc(name)
    stat = c_handle_load(region%reference, handle, ty, found)
    if (stat == CROSSDOCK_OK) object = made(region%reference, type_name, found)
  end subroutine

  subroutine region_remove(region, name, stat)
    class(crossdock_region), intent(in) :: region
    character(*), intent(in) :: name
    integer, intent(out) :: stat
    stat = c_object_remove(region%reference, name // c_null_char)
  end subroutine

  subroutine region_id(region, segment, stat)
    class(crossdock_region), intent(in) :: region
    integer(int64), intent(out) :: segment
    integer, intent(out) :: stat
    stat = c_region_id(region%reference, segment)
  end subroutine

  subroutine region_statistics(region, statistics, stat)
    class(crossdock_region), intent(in) :: region
    type(crossdock_region_statistics), intent(out) :: statistics
    integer, intent(out) :: stat
    stat = c_region_statistics_get(region%reference, statistics)
  end subroutine

  subroutine region_free(region)
    class(crossdock_region), intent(inout) :: region
    integer :: ignored
    ignored = c_region_unref(region%reference)
    region%reference = c_null_ptr
  end subroutine

  !> Gives a variable the reference to a region. If the variable has a reference already, that reference is given up.
  subroutine hold_region(region, reference)
    type(crossdock_region), intent(inout) :: region
    type(c_ptr), intent(in) :: reference
    if (c_associated(region%reference)) call region%free()
    region%reference = reference
  end subroutine

  !> Sends a message. `bytes` is the amount of data that the handle stands for; it is only used for the statistics.
  subroutine port_send(port, message, stat, bytes, timeout_ms)
    class(crossdock_port), intent(in) :: port
    type(crossdock_message), intent(in) :: message
    integer, intent(out) :: stat
    integer(int64), intent(in), optional :: bytes
    integer, intent(in), optional :: timeout_ms
    integer(int64) :: handed_over
    handed_over = 0
    if (present(bytes)) handed_over = bytes
    stat = c_port_send(port%reference, message, handed_over, given(timeout_ms, CROSSDOCK_WAIT))
  end subroutine

  subroutine port_reclaim(port, handle, stat, timeout_ms)
    class(crossdock_port), intent(in) :: port
    type(crossdock_handle), intent(out) :: handle
    integer, intent(out) :: stat
    integer, intent(in), optional :: timeout_ms
    stat = c_port_reclaim(port%reference, given(timeout_ms, CROSSDOCK_WAIT), handle)
  end subroutine

  subroutine port_receive(port, message, stat, timeout_ms)
    class(crossdock_port), intent(in) :: port
    type(crossdock_message), intent(out) :: message
    integer, intent(out) :: stat
    integer, intent(in), optional :: timeout_ms
    stat = c_port_receive(port%reference, given(timeout_ms, CROSSDOCK_WAIT), message)
  end subroutine

  subroutine port_release(port, message, stat)
    class(crossdock_port), intent(in) :: port
    type(crossdock_message), intent(in) :: message
    integer, intent(out) :: stat
    stat = c_port_release(port%reference, message)
  end subroutine

  subroutine port_wait_peer(port, stat, timeout_ms)
    class(crossdock_port), intent(in) :: port
    integer, intent(out) :: stat
    integer, intent(in), optional :: timeout_ms
    stat = c_port_wait_peer(port%reference, given(timeout_ms, CROSSDOCK_WAIT))
  end subroutine

  subroutine port_descriptor(port, descriptor, stat)
    class(crossdock_port), intent(in) :: port
    integer(c_int), intent(out) :: descriptor
    integer, intent(out) :: stat
    stat = c_port_descriptor(port%reference, descriptor)
  end subroutine

  subroutine port_arm(port, ready, stat)
    class(crossdock_port), intent(in) :: port
    logical, intent(out) :: ready
    integer, intent(out) :: stat
    integer(c_int) :: now
    now = 0
    stat = c_port_arm(port%reference, now)
    ready = now /= 0
  end subroutine

  subroutine port_disarm(port, stat)
    class(crossdock_port), intent(in) :: port
    integer, intent(out) :: stat
    stat = c_port_disarm(port%reference)
  end subroutine

  subroutine port_statistics(port, statistics, stat)
    class(crossdock_port), intent(in) :: port
    type(crossdock_port_statistics), intent(out) :: statistics
    integer, intent(out) :: stat
    stat = c_port_statistics_get(port%reference, statistics)
  end subroutine

  subroutine port_note_copied(port, bytes, stat)
    class(crossdock_port), intent(in) :: port
    integer(int64), intent(in) :: bytes
    integer, intent(out) :: stat
    stat = c_port_note_copied(port%reference, bytes)
  end subroutine

  subroutine port_close(port, stat)
    class(crossdock_port), intent(in) :: port
    integer, intent(out) :: stat
    stat = c_port_close(port%reference)
  end subroutine

  subroutine port_free(port)
    class(crossdock_port), intent(inout) :: port
    integer :: ignored
    ignored = c_port_unref(port%reference)
    port%reference = c_null_ptr
  end subroutine
end module
