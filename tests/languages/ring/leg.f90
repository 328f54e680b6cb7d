! The fourth leg of the ring, in which a vector passes through programs in five languages (README.md).
program leg
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int64, real64
  use crossdock
  implicit none
  integer, parameter :: me = 4          ! element 3 of the vector, counted from 0
  integer, parameter :: patience = 30000
  type(crossdock_session) :: session
  type(crossdock_region) :: region
  type(crossdock_object) :: v
  type(crossdock_port) :: in, out
  type(crossdock_message) :: message, onwards
  type(crossdock_handle) :: same
  type(crossdock_port_statistics) :: counted
  real(real64), pointer :: x(:)
  character(100) :: prefix, text
  integer(int64) :: laps, lap, told
  integer :: stat

  call get_command_argument(1, prefix)
  call get_command_argument(2, text)
  read (text, *) laps
  call session%connect(stat, task='fortran', private_daemon=.false.)
  call ok(stat)
  call session%port(trim(prefix) // '/python-fortran', CROSSDOCK_CONSUMER, in, stat, capacity=2)
  call ok(stat)
  call session%port(trim(prefix) // '/fortran-c', CROSSDOCK_PRODUCER, out, stat, capacity=2)
  call ok(stat)
  do lap = 0, laps - 1
    call in%receive(message, stat, timeout_ms=patience)
    call ok(stat)
    if (lap == 0) then
      same = message%handle
      call session%load(message%handle, 'vector<f64>', region, v, stat)
    else
      call region%load(message%handle, 'vector<f64>', v, stat)
    end if
    call ok(stat)
    call check(v%handle == same .and. message%handle == same, 'the handle is the same')
    call v%view(x, stat)
    call ok(stat)
    told = transfer(message%inline_bytes(1:8), told)
    call check(message%tag == lap .and. message%inline_length == 8, 'the message is that of this lap')
    call check(told == v%handle%offset + address(c_loc(x(1))) - address(v%address), 'the elements lie where Rust put them')
    call check(nint(x(me - 1)) == lap + 1 .and. nint(x(me + 1)) == lap, &
               'the leg before was there, the one behind was not')
    x(me) = x(me) + 1
    onwards = message
    call out%send(onwards, stat, bytes=8_int64 * size(x), timeout_ms=patience)
    call ok(stat)
    call in%release(message, stat)
    call ok(stat)
  end do
  call out%statistics(counted, stat)
  call ok(stat)
  call check(counted%messages == laps .and. counted%bytes_handed_over == laps * 8008, 'all is counted')
  call check(counted%bytes_copied == 0, 'nothing was copied')
  call out%free()
  call in%free()
  call region%free()
  call session%free()
  print '(a)', 'ok ring fortran: same handle, same elements, 0 copied'

contains

  integer(int64) function address(pointer)
    type(c_ptr), intent(in) :: pointer
    address = transfer(pointer, address)
  end function

  subroutine ok(stat)
    integer, intent(in) :: stat
    if (stat == CROSSDOCK_OK) return
    print '(4a)', 'FAILED ring fortran: ', crossdock_status_name(stat), ': ', crossdock_error_message()
    stop 1, quiet=.true.
  end subroutine

  subroutine check(so, what)
    logical, intent(in) :: so
    character(*), intent(in) :: what
    if (so) return
    print '(2a)', 'FAILED ring fortran: not so: ', what
    stop 1, quiet=.true.
  end subroutine
end program
