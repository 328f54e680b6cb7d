! Tests rows F1 to F9 of the table in ../conformance.md: files of managed directories.
module files
  use suite
  implicit none
  private
  public :: f1, f2, f3, f4, f5, f6, f7, f8, f9

  integer, parameter :: SIZE_OF_FILE = 100000
  character(2) :: directory

  interface
    function c_symlink(target, path) bind(c, name="symlink") result(bad)
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: target(*), path(*)
      integer(c_int) :: bad
    end function
    function c_rename(from, to) bind(c, name="rename") result(bad)
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: from(*), to(*)
      integer(c_int) :: bad
    end function
    function c_remove(path) bind(c, name="remove") result(bad)
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int) :: bad
    end function
    function c_mkdir(path, mode) bind(c, name="mkdir") result(bad)
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int), value :: mode
      integer(c_int) :: bad
    end function
    function c_usleep(microseconds) bind(c, name="usleep") result(bad)
      import :: c_int
      integer(c_int), value :: microseconds
      integer(c_int) :: bad
    end function
    function c_getpid() bind(c, name="getpid") result(pid)
      import :: c_int
      integer(c_int) :: pid
    end function
  end interface

contains

  function place(side, name) result(path)
    character(*), intent(in) :: side, name
    character(:), allocatable :: path
    integer :: length
    directory = 'f' // row_id(2:2)
    call get_environment_variable('CROSSDOCK_CONFORMANCE_FILES', length=length)
    call check(length > 0, 'CROSSDOCK_CONFORMANCE_FILES is set, as tests/languages/run does')
    allocate (character(length) :: path)
    call get_environment_variable('CROSSDOCK_CONFORMANCE_FILES', path)
    path = path // '/' // directory // '/' // side // '/' // name
  end function

  !> Opens a file in `stage` for writing, and writes `bytes` bytes with the value `byte`.
  subroutine begin(unit, name, byte, bytes)
    integer, intent(out) :: unit
    character(*), intent(in) :: name
    character, intent(in) :: byte
    integer, intent(in) :: bytes
    integer :: stat
    open (newunit=unit, file=place('stage', name), access='stream', form='unformatted', status='replace', iostat=stat)
    call check(stat == 0, 'open for writing')
    call put(unit, byte, bytes)
  end subroutine

  subroutine put(unit, byte, bytes)
    integer, intent(in) :: unit, bytes
    character, intent(in) :: byte
    integer :: stat
    write (unit, iostat=stat) repeat(byte, bytes)
    call check(stat == 0, 'write')
    flush (unit, iostat=stat)
    call check(stat == 0, 'flush')
  end subroutine

  subroutine write_file(name, byte)
    character(*), intent(in) :: name
    character, intent(in) :: byte
    integer :: unit
    call begin(unit, name, byte, SIZE_OF_FILE)
    close (unit)
  end subroutine

  !> Waits until the file `name` is in the folder `published`, and opens the file.
  subroutine await_open(name, unit)
    character(*), intent(in) :: name
    integer, intent(out) :: unit
    integer :: stat
    call crossdock_await_file(place('published', name), stat)
    call ok(stat, 'await')
    open (newunit=unit, file=place('published', name), access='stream', form='unformatted', status='old', action='read', &
          iostat=stat)
    call check(stat == 0, 'open for reading')
  end subroutine

  !> Checks that the file has the expected number of bytes, and that all of them are equal to `byte`.
  subroutine holds(unit, byte)
    integer, intent(in) :: unit
    character, intent(in) :: byte
    character(SIZE_OF_FILE) :: bytes
    integer :: length, stat
    inquire (unit, size=length)
    call check(length == SIZE_OF_FILE, 'size of the file')
    read (unit, iostat=stat) bytes
    call check(stat == 0, 'read')
    call check(bytes == repeat(byte, SIZE_OF_FILE), 'bytes of the file')
    close (unit)
  end subroutine

  subroutine comes(name, byte)
    character(*), intent(in) :: name
    character, intent(in) :: byte
    integer :: unit
    call await_open(name, unit)
    call holds(unit, byte)
  end subroutine

  logical function is_seen(name)
    character(*), intent(in) :: name
    inquire (file=place('published', name), exist=is_seen)
  end function

  !> Process B writes the file, and process A opens it.
  subroutine opened(name, unit)
    character(*), intent(in) :: name
    integer, intent(out) :: unit
    call ends_well(start('writes', name))
    call await_open(name, unit)
  end subroutine

  subroutine f1()
    integer(c_int) :: peer, ignored
    integer(int64) :: began
    integer :: stat
    if (.not. first()) then
      ignored = c_usleep(200000)
      call write_file('coming', 'x')
      return
    end if
    peer = start('later')
    call comes('coming', 'x')
    call ends_well(peer)
    began = peer_now_ms()
    call crossdock_await_file('/nonexistent/file', stat)
    call ok(stat, 'a path elsewhere')
    call check(peer_now_ms() - began < 2000, 'at once')
  end subroutine

  subroutine f2()
    integer(int64) :: began, took
    integer :: stat
    began = peer_now_ms()
    call crossdock_await_file(place('published', 'never'), stat)
    took = peer_now_ms() - began
    call want(CROSSDOCK_TIMED_OUT, stat, 'never')
    call says('f2/published/never')
    call says('simulate')
    call check(took >= 300 .and. took <= 5000, 'after 300 ms to 5 s')
  end subroutine

  subroutine f3()
    integer(c_int) :: peer, ignored
    integer :: unit, stat
    character(12) :: own
    if (.not. first()) then
      write (own, '(i0)') c_getpid()
      call check(c_symlink(trim(own) // c_null_char, place('stage', '.producer') // c_null_char) == 0, 'symlink')
      call begin(unit, 'half', 'x', SIZE_OF_FILE / 2)
      ignored = c_usleep(200000)
      call peer_die()
    end if
    peer = start('dies')
    call crossdock_await_file(place('published', 'half'), stat)
    call want(CROSSDOCK_NOT_FOUND, stat, 'half')
    call says('half')
    call says('simulate failed')
    call says('killed')
    call check(.not. is_seen('half'), 'half is not seen')
    call check(peer_end(peer) == 128 + 9, 'the producer was killed')
  end subroutine

  subroutine f4()
    integer :: unit
    if (role == 'again') then
      call write_file('next', 'y')
      call check(c_rename(place('stage', 'next') // c_null_char, place('stage', 'name') // c_null_char) == 0, 'rename')
      call write_file('after', 'x')
    else if (.not. first()) then
      call write_file(argument, 'x')
    else
      call opened('name', unit)
      call ends_well(start('again'))
      call comes('after', 'x')
      call comes('name', 'y')
      call holds(unit, 'x')
    end if
  end subroutine

  subroutine f5()
    integer(c_int) :: peer
    integer :: unit
    if (.not. first()) then
      call begin(unit, 'slow', 'x', SIZE_OF_FILE / 2)
      call tell_test('half')
      call expect_test('go on')
      call put(unit, 'x', SIZE_OF_FILE / 2)
      close (unit)
      return
    end if
    peer = start('slowly')
    call expect(peer, 'half')
    call check(.not. is_seen('slow'), 'slow is not seen')
    call tell(peer, 'go on')
    call comes('slow', 'x')
    call ends_well(peer)
  end subroutine

  subroutine f6()
    if (.not. first()) then
      call check(c_mkdir(place('stage', 'a') // c_null_char, int(o'755', c_int)) == 0, 'mkdir')
      call check(c_mkdir(place('stage', 'a/b') // c_null_char, int(o'755', c_int)) == 0, 'mkdir')
      call write_file('a/b/c', 'x')
      return
    end if
    call ends_well(start('folder'))
    call comes('a/b/c', 'x')
  end subroutine

  subroutine f7()
    integer :: unit
    if (role == 'remove') then
      call check(c_remove(place('stage', 'gone') // c_null_char) == 0, 'remove')
      call write_file('after', 'x')
    else if (.not. first()) then
      call write_file(argument, 'x')
    else
      call opened('gone', unit)
      call ends_well(start('remove'))
      call comes('after', 'x')
      call check(.not. is_seen('gone'), 'gone is not seen')
      call holds(unit, 'x')
    end if
  end subroutine

  subroutine f8()
    integer :: unit, stat, flushed, attempt
    logical :: fits
    if (.not. first()) then
      open (newunit=unit, file=place('stage', 'big'), access='stream', form='unformatted', status='replace', iostat=stat)
      call check(stat == 0, 'open for writing')
      write (unit, iostat=stat) repeat('x', 2000000)
      flush (unit, iostat=flushed)
      call check(stat /= 0 .or. flushed /= 0, 'writing 2 000 000 bytes into 1 MiB fails')
      close (unit, iostat=stat)
      call check(c_remove(place('stage', 'big') // c_null_char) == 0, 'remove')
      ! Waits until the file system has room again. A file whose name begins with a dot is not managed, but it needs
      ! room in the file system of the managed directory, so it shows whether there is room.
      do attempt = 1, 1000
        open (newunit=unit, file=place('stage', '.room'), access='stream', form='unformatted', status='replace', iostat=stat)
        call check(stat == 0, 'open for writing')
        write (unit, iostat=stat) repeat('x', 2 * SIZE_OF_FILE)
        flush (unit, iostat=flushed)
        fits = stat == 0 .and. flushed == 0
        close (unit, iostat=stat)
        call check(c_remove(place('stage', '.room') // c_null_char) == 0, 'remove')
        if (fits) exit
        stat = c_usleep(10000)
      end do
      call write_file('small', 'x')
      return
    end if
    call ends_well(start('full'))
    call comes('small', 'x')
    call check(.not. is_seen('big'), 'big is not seen')
  end subroutine

  subroutine f9()
    integer :: unit, i
    if (.not. first()) then
      call write_file(argument, 'x')
      return
    end if
    do i = 1, 3
      call opened(achar(iachar('0') + i), unit)
      close (unit)
    end do
    call check(.not. is_seen('1'), '1 is not seen')
    call comes('2', 'x')
  end subroutine
end module
