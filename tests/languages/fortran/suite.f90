! Runs the tests, one for each row of ../conformance.md. Each test runs in a process of its own, which may start other
! processes (../c/peer.h).
module suite
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit, int32, int64, real32, real64
  use crossdock
  implicit none
  public

  character(:), allocatable :: row_id, role, prefix, argument
  type(crossdock_session) :: session
  type(crossdock_region) :: region
  logical, private :: connected = .false., has_region = .false.
  integer, parameter :: WAIT = 10000
  integer(int64), parameter :: MIB = 1048576

  interface
    function peer_now_ms() bind(c) result(ms)
      import :: c_long_long
      integer(c_long_long) :: ms
    end function
    function c_peer_start(row, role, prefix, argument) bind(c, name="peer_start") result(peer)
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: row(*), role(*), prefix(*), argument(*)
      integer(c_int) :: peer
    end function
    function c_peer_tell(peer, line) bind(c, name="peer_tell") result(bad)
      import :: c_char, c_int
      integer(c_int), value :: peer
      character(kind=c_char), intent(in) :: line(*)
      integer(c_int) :: bad
    end function
    function c_peer_expect(peer, line) bind(c, name="peer_expect") result(bad)
      import :: c_char, c_int
      integer(c_int), value :: peer
      character(kind=c_char), intent(in) :: line(*)
      integer(c_int) :: bad
    end function
    function c_peer_last() bind(c, name="peer_last") result(text)
      import :: c_ptr
      type(c_ptr) :: text
    end function
    function peer_end(peer) bind(c) result(status)
      import :: c_int
      integer(c_int), value :: peer
      integer(c_int) :: status
    end function
    function c_parent_tell(line) bind(c, name="parent_tell") result(bad)
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: line(*)
      integer(c_int) :: bad
    end function
    function c_parent_expect(line) bind(c, name="parent_expect") result(bad)
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: line(*)
      integer(c_int) :: bad
    end function
    subroutine peer_die() bind(c)
    end subroutine
    subroutine c_exit(status) bind(c, name="exit")
      import :: c_int
      integer(c_int), value :: status
    end subroutine
    function c_strlen(text) bind(c, name="strlen") result(length)
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
      integer(c_size_t) :: length
    end function
  end interface

contains

  function last_line() result(line)
    character(:), allocatable :: line
    character(kind=c_char), pointer :: bytes(:)
    type(c_ptr) :: text
    text = c_peer_last()
    allocate (character(c_strlen(text)) :: line)
    if (len(line) == 0) return
    call c_f_pointer(text, bytes, [len(line)])
    line = transfer(bytes, line)
  end function

  !> Makes a name for an object of the test: "fortran-4711/r4", or with a letter "fortran-4711/r4b".
  function name_of(suffix) result(name)
    character(*), intent(in) :: suffix
    character(:), allocatable :: name
    name = prefix // '/' // achar(iachar(row_id(1:1)) + 32) // row_id(2:) // suffix
  end function

  logical function first()
    first = role == 'run'
  end function

  subroutine open_session()
    integer :: stat
    if (connected) return
    call session%connect(stat, task=merge('test', 'peer', first()), private_daemon=.false.)
    call ok(stat, 'connect')
    connected = .true.
  end subroutine

  subroutine open_region()
    integer :: stat
    call open_session()
    if (has_region) return
    call session%region(name_of(''), region, stat, size=16 * MIB)
    call ok(stat, 'region')
    has_region = .true.
  end subroutine

  !> Removes the objects that the test made. The test itself may have removed some of them already.
  subroutine finish(status)
    integer, intent(in) :: status
    integer :: ignored
    if (connected .and. first()) then
      call session%remove_region(name_of(''), ignored)
      call session%remove_region(name_of('b'), ignored)
      call session%remove_port(name_of(''), ignored)
      call session%remove_port(name_of('b'), ignored)
    end if
    call session%free()
    call c_exit(int(status, c_int))
  end subroutine

  subroutine fail(text)
    character(*), intent(in) :: text
    integer :: ignored
    ! A peer also writes the reason of its failure to the log, because the first process may fail before it reads the
    ! peer's line.
    if (.not. first()) write (error_unit, '(a)') row_id // ', role ' // role // ': ' // text
    ignored = c_parent_tell(text // c_null_char)
    call finish(1)
  end subroutine

  subroutine want(wanted, stat, what)
    integer, intent(in) :: wanted, stat
    character(*), intent(in) :: what
    if (stat /= wanted) call fail(what // ' gave ' // crossdock_status_name(stat) // ' instead of ' // &
                                  crossdock_status_name(wanted) // ': ' // crossdock_error_message())
  end subroutine

  subroutine ok(stat, what)
    integer, intent(in) :: stat
    character(*), intent(in) :: what
    call want(CROSSDOCK_OK, stat, what)
  end subroutine

  subroutine check(so, what)
    logical, intent(in) :: so
    character(*), intent(in) :: what
    if (.not. so) call fail('not so: ' // what)
  end subroutine

  subroutine says(text)
    character(*), intent(in) :: text
    if (index(crossdock_error_message(), text) == 0) &
      call fail("the message does not say '" // text // "': " // crossdock_error_message())
  end subroutine

  integer(c_int) function start(its_role, its_argument)
    character(*), intent(in) :: its_role
    character(*), intent(in), optional :: its_argument
    character(:), allocatable :: text
    text = ''
    if (present(its_argument)) text = its_argument
    start = c_peer_start(row_id // c_null_char, its_role // c_null_char, prefix // c_null_char, text // c_null_char)
    call check(start >= 0, 'a peer is started')
  end function

  subroutine tell(peer, line)
    integer(c_int), intent(in) :: peer
    character(*), intent(in) :: line
    call check(c_peer_tell(peer, line // c_null_char) == 0, 'the peer is told ' // line)
  end subroutine

  subroutine expect(peer, line)
    integer(c_int), intent(in) :: peer
    character(*), intent(in) :: line
    if (c_peer_expect(peer, line // c_null_char) /= 0) call fail('the peer said: ' // last_line())
  end subroutine

  subroutine tell_test(line)
    character(*), intent(in) :: line
    call check(c_parent_tell(line // c_null_char) == 0, 'the test is told ' // line)
  end subroutine

  subroutine expect_test(line)
    character(*), intent(in) :: line
    if (c_parent_expect(line // c_null_char) /= 0) call fail('the test said: ' // last_line())
  end subroutine

  subroutine ends_well(peer)
    integer(c_int), intent(in) :: peer
    integer(c_int) :: status
    character(8) :: number
    status = peer_end(peer)
    write (number, '(i0)') status
    if (status /= 0) then
      ! Reads the rest of the peer's output, if there is any.
      if (c_peer_expect(peer, c_null_char) /= 0) number = trim(number) // ':'
      call fail('the peer ended with ' // trim(number) // ' ' // last_line())
    end if
  end subroutine

  !> Opens one end of the port of this test.
  subroutine open_port(port, end, pattern, capacity)
    type(crossdock_port), intent(inout) :: port
    integer, intent(in) :: end, pattern, capacity
    integer :: stat
    call open_session()
    call session%port(name_of(''), end, port, stat, pattern=pattern, capacity=capacity)
    call ok(stat, 'port')
  end subroutine

  subroutine send_tag(port, tag)
    type(crossdock_port), intent(in) :: port
    integer, intent(in) :: tag
    type(crossdock_message) :: message
    integer :: stat
    message%tag = tag
    call port%send(message, stat, timeout_ms=WAIT)
    call ok(stat, 'send')
  end subroutine

  !> Receives a message, releases it, and returns its tag.
  integer function take(port)
    type(crossdock_port), intent(in) :: port
    type(crossdock_message) :: message
    integer :: stat
    call port%receive(message, stat, timeout_ms=WAIT)
    call ok(stat, 'receive')
    call port%release(message, stat)
    call ok(stat, 'release')
    take = int(message%tag)
  end function
end module
