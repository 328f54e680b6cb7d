! One worker of the soak test, in Fortran. worker.c describes what it does.
!
!     worker NUMBER SECONDS
!
! Integers wrap around (-fwrapv), because the checksums need it.
module worker
  use, intrinsic :: iso_fortran_env, only: int64, real64, output_unit
  use, intrinsic :: iso_c_binding, only: c_int
  use crossdock
  use crossdock_items
  implicit none

  integer, parameter :: N = 4096, ITEM = 50000, SHORT = 200, LONG = 10000
  real(real64), parameter :: SLOW = 4
  integer :: number, half
  type(crossdock_session) :: session
  type(crossdock_region) :: region
  type(crossdock_object) :: vector
  type(crossdock_port) :: port
  type(crossdock_publisher) :: publisher
  type(crossdock_observer) :: observer
  logical :: has_region = .false., has_vector = .false., has_port = .false., publishes = .false., observes = .false.
  integer(int64) :: sent = 0, received = 0, from = 0, pid
  real(real64) :: mark

  interface
    integer(c_int) function process() bind(c, name="getpid")
      import :: c_int
    end function
  end interface

contains

  real(real64) function now()
    integer(int64) :: count, rate
    call system_clock(count, rate)
    now = real(count, real64) / real(rate, real64)
  end function

  subroutine say(line)
    character(*), intent(in) :: line
    write (output_unit, '(a)') line
    flush (output_unit)
  end subroutine

  subroutine wrong(what)
    character(*), intent(in) :: what
    call say('WRONG ' // what)
    stop 3, quiet=.true.
  end subroutine

  !> Tells whether the call succeeded. An unexpected error ends the worker; one is that the session is over. If the call
  !> took several seconds, a line is printed.
  logical function works(what, stat)
    character(*), intent(in) :: what
    integer, intent(in) :: stat
    character(12) :: seconds
    real(real64) :: began
    logical :: is_explained
    began = mark
    mark = now()
    works = stat == CROSSDOCK_OK
    if (mark - began > SLOW) then
      write (seconds, '(f0.1)') mark - began
      call say('SLOW ' // trim(seconds) // ' s: ' // what // ': ' // crossdock_status_name(stat))
    end if
    select case (stat)
    case (CROSSDOCK_OK, CROSSDOCK_NOT_YET, CROSSDOCK_TIMED_OUT, CROSSDOCK_CLOSED, CROSSDOCK_PEER_DIED, CROSSDOCK_NOT_FOUND, &
          CROSSDOCK_EXISTS, CROSSDOCK_NO_SPACE, CROSSDOCK_BUSY)
      is_explained = .true.
    case (CROSSDOCK_DISCONNECTED)
      is_explained = index(crossdock_error_message(), 'cannot be made again') == 0
    case default
      is_explained = .false.
    end select
    if (.not. is_explained) then
      call say('UNEXPLAINED ' // what // ': ' // crossdock_error_message())
      stop 4, quiet=.true.
    end if
  end function

  elemental integer(int64) function mix(x)
    integer(int64), intent(in) :: x
    integer(int64) :: z
    z = x + int(z'9e3779b97f4a7c15', int64)
    z = ieor(z, ishft(z, -30)) * int(z'bf58476d1ce4e5b9', int64)
    z = ieor(z, ishft(z, -27)) * int(z'94d049bb133111eb', int64)
    mix = ieor(z, ishft(z, -31))
  end function

  subroutine fill(words, stamp)
    integer(int64), intent(out) :: words(:)
    integer(int64), intent(in) :: stamp
    integer :: i
    do i = 1, size(words)
      words(i) = mix(stamp + i - 1)
    end do
  end subroutine

  subroutine check(what, words, stamp)
    character(*), intent(in) :: what
    integer(int64), intent(in) :: words(:), stamp
    integer :: i
    do i = 1, size(words)
      if (words(i) /= mix(stamp + i - 1)) call wrong(what)
    end do
  end subroutine

  function name_of(kind, of) result(name)
    character(*), intent(in) :: kind
    integer, intent(in) :: of
    character(:), allocatable :: name
    character(12) :: digits
    write (digits, '(i0)') of
    name = kind // trim(digits)
  end function

  subroutine heap_round(stamp)
    integer(int64), intent(in) :: stamp
    integer(int64), pointer :: words(:)
    integer :: stat
    if (.not. has_region) then
      call session%region('heap', region, stat, size=268435456_int64)
      has_region = works('region', stat)
      if (.not. has_region) return
    end if
    if (.not. has_vector) then
      call region%object(name_of('v', number), 'vector<i64>', vector, stat, timeout_ms=LONG)
      has_vector = works('vector', stat)
      if (.not. has_vector) return
    end if
    ! The first element is the number from which the other elements were computed, or 0 while they are being written.
    call vector%view(words, stat)
    if (.not. works('view', stat)) return
    if (size(words) > 1) then
      if (words(1) /= 0) call check('vector', words(2:), words(1))
    end if
    if (size(words) > 0) call put(words, 0_int64)
    call vector%resize(int(2 + modulo(ishft(mix(stamp), -1), 5000_int64)), stat)
    if (.not. works('resize', stat)) return
    call vector%view(words, stat)
    if (.not. works('view', stat)) return
    call fill(words(2:), ior(stamp, 1_int64))
    call put(words, ior(stamp, 1_int64))
  end subroutine

  !> Stores the first word. This is a separate subroutine, so that the compiler does not reorder this store and other
  !> stores.
  subroutine put(words, value)
    integer(int64), volatile, intent(inout) :: words(:)
    integer(int64), intent(in) :: value
    words(1) = value
  end subroutine

  subroutine port_round()
    type(crossdock_message) :: message
    integer(int64) :: body(2)
    integer :: stat, ignored
    if (.not. has_port) then
      call session%port(name_of('p', number / 2), merge(CROSSDOCK_CONSUMER, CROSSDOCK_PRODUCER, half == 1), port, stat, &
                        pattern=CROSSDOCK_ONE_TO_ONE, capacity=8, timeout_ms=SHORT, persistent=.true.)
      has_port = works('port', stat)
      if (.not. has_port) return
    end if
    if (half == 0) then
      message%tag = ior(ishft(pid, 32), sent + 1)
      body = [message%tag, mix(message%tag)]
      message%inline_length = 16
      message%inline_bytes(1:16) = transfer(body, message%inline_bytes(1:16))
      call port%send(message, stat, timeout_ms=SHORT)
      if (works('send', stat)) sent = sent + 1
    else
      call port%receive(message, stat, timeout_ms=SHORT)
      if (works('receive', stat)) then
        body = transfer(message%inline_bytes(1:16), body)
        if (body(1) /= message%tag .or. body(2) /= mix(message%tag)) call wrong('message')
        ! Each message of a producer must arrive exactly once, and in the order of sending.
        if (ishft(message%tag, -32) == from .and. iand(message%tag, int(z'ffffffff', int64)) /= received + 1) &
          call wrong('order of messages')
        from = ishft(message%tag, -32)
        received = iand(message%tag, int(z'ffffffff', int64))
        call port%release(message, ignored)
        if (works('release', ignored)) continue
      end if
    end if
    if (stat == CROSSDOCK_CLOSED .or. stat == CROSSDOCK_DISCONNECTED) then
      call port%close(ignored)
      call port%free()
      has_port = .false.
      from = 0
    end if
  end subroutine

  subroutine series_round(stamp)
    integer(int64), intent(in) :: stamp
    type(crossdock_publisher) :: fresh
    type(crossdock_version) :: version
    integer(int64), pointer :: u(:)
    integer(int64) :: seen
    integer :: stat
    if (half == 0) then
      if (.not. publishes) then
        publisher = fresh
        call publisher%variable('u', 'i64', [N])
        call publisher%attribute('stamp', 'i64')
        call session%publisher(name_of('s', number / 2), publisher, stat)
        publishes = works('publisher', stat)
        if (.not. publishes) return
      end if
      call publisher%view('u', u, stat)
      if (.not. works('view of u', stat)) return
      call fill(u, stamp)
      call publisher%set('stamp', stamp)
      call publisher%publish(stat)
      if (works('publish', stat)) continue
      return
    end if
    if (.not. observes) then
      call session%observe(name_of('s', number / 2), observer, stat, timeout_ms=SHORT)
      observes = works('observe', stat)
      if (.not. observes) return
    end if
    call observer%next(version, stat, timeout_ms=SHORT)
    if (works('next', stat)) then
      call version%view('u', u, stat)
      if (works('view of a version', stat)) then
        call version%attribute('stamp', seen, stat)
        if (works('attribute', stat)) call check('version', u, seen)
      end if
      call version%free()
    else if (stat /= CROSSDOCK_TIMED_OUT .and. stat /= CROSSDOCK_NOT_YET) then
      call observer%free()
      observes = .false.
    end if
  end subroutine

  subroutine item_round(stamp)
    integer(int64), intent(in) :: stamp
    type(crossdock_item) :: one
    integer(int64), pointer :: words(:)
    integer :: stat
    if (half == 1) then
      call one%access(session, name_of('i', number / 2), stat, timeout_ms=SHORT)
    else
      call one%create(session, name_of('i', number / 2), int(ITEM, int64), stat)
      ! An item of this name exists, because the previous round did not hand it on.
      if (stat == CROSSDOCK_EXISTS) call one%access(session, name_of('i', number / 2), stat, timeout_ms=0)
    end if
    if (.not. works('create or access', stat)) return
    call one%view(words, stat)
    if (works('view of the item', stat)) then
      if (size(words) /= ITEM / 8) call wrong('size of the item')
      if (half == 0) then
        call fill(words(2:), ior(stamp, 1_int64))
        words(1) = ior(stamp, 1_int64)
        call one%transfer(name_of('w', ieor(number, 1)), stat)
        if (works('transfer', stat)) continue
      else
        call check('item', words(2:), words(1))
        call one%destroy(stat)
        if (works('destroy', stat)) continue
      end if
    end if
    call one%free()
  end subroutine

end module

program soak_worker
  use worker
  implicit none
  character(32) :: word
  real(real64) :: until, told, longest, began, seconds
  integer(int64) :: rounds, stamp
  integer :: stat
  call get_command_argument(1, word)
  read (word, *) number
  call get_command_argument(2, word)
  read (word, *) seconds
  until = now() + seconds
  half = modulo(number, 2)
  pid = process()
  do
    mark = now()
    call session%connect(stat, task=name_of('w', number), private_daemon=.false.)
    if (works('connect', stat)) exit
    if (now() > until) stop
    call execute_command_line('sleep 0.02')
  end do
  told = now()
  longest = 0
  rounds = 0
  stamp = ishft(mix(pid), -2)
  do while (now() < until)
    began = now()
    mark = began
    call heap_round(stamp)
    call port_round()
    call series_round(stamp)
    call item_round(stamp)
    stamp = stamp + 1
    rounds = rounds + 1
    longest = max(longest, now() - began)
    if (now() - told > 1) then
      write (word, '(i0, 1x, f0.3)') rounds, 1000 * longest
      call say(trim(word))
      told = now()
      longest = 0
    end if
  end do
  write (word, '(a, i0)') 'DONE ', rounds
  call say(trim(word))
end program
