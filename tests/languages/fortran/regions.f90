! Tests rows R1 to R17 and E1 to E4 of the table in ../conformance.md: regions, their objects, and errors.
module regions
  use suite
  implicit none
contains

  integer function mode()
    mode = merge(CROSSDOCK_CREATE_ONLY, CROSSDOCK_OPEN_ONLY, first())
  end function

  subroutine open_object(object, name, type_name, how)
    type(crossdock_object), intent(inout) :: object
    character(*), intent(in) :: name, type_name
    integer, intent(in) :: how
    integer :: stat
    call open_region()
    call region%object(name, type_name, object, stat, mode=how)
    call ok(stat, 'object ' // name)
  end subroutine

  function integer_of(name, how) result(n)
    character(*), intent(in) :: name
    integer, intent(in) :: how
    integer(int32), pointer :: n
    type(crossdock_object) :: object
    integer :: stat
    call open_object(object, name, 'i32', how)
    call object%view(n, stat)
    call ok(stat, 'view of ' // name)
  end function

  subroutine r1()
    type(crossdock_region) :: one, again
    type(crossdock_object) :: n
    integer(int64) :: id, other
    integer :: stat, how
    call open_session()
    call session%region(name_of(''), one, stat, mode=CROSSDOCK_OPEN_ONLY)
    call want(CROSSDOCK_NOT_FOUND, stat, 'open_only')
    call session%region(name_of(''), one, stat, mode=CROSSDOCK_CREATE_ONLY, size=16 * MIB)
    call ok(stat, 'create_only')
    call one%id(id, stat)
    call one%object('n', 'i32', n, stat)
    call ok(stat, 'object')
    call session%region(name_of(''), again, stat, mode=CROSSDOCK_CREATE_ONLY, size=16 * MIB)
    call want(CROSSDOCK_EXISTS, stat, 'create_only again')
    call says(name_of(''))
    do how = CROSSDOCK_OPEN_ONLY, CROSSDOCK_OPEN_OR_CREATE
      call session%region(name_of(''), again, stat, mode=how, size=16 * MIB)
      call ok(stat, 'open')
      call again%id(other, stat)
      call check(id == other, 'the same id')
      call again%free()
    end do
    call session%region(name_of(''), again, stat, mode=CROSSDOCK_RECREATE, size=16 * MIB)
    call ok(stat, 'recreate')
    call again%id(other, stat)
    call check(id /= other, 'another id')
    call again%object('n', 'i32', n, stat, mode=CROSSDOCK_OPEN_ONLY)
    call want(CROSSDOCK_NOT_FOUND, stat, 'an object of the old one')
    call one%free()
    call again%free()
  end subroutine

  subroutine r2()
    integer(int32), pointer :: n
    n => integer_of('n', mode())
    if (first()) then
      call check(n == 0, 'new is zero')
      n = 123
      call ends_well(start('B'))
      call check(n == 370, 'n is 370')
    else
      call check(n == 123, 'n is 123')
      n = 3 * n + 1
    end if
  end subroutine

  subroutine r3()
    type, bind(c) :: s_type
      integer(c_int32_t) :: i
      real(c_double) :: d
      integer(c_int32_t) :: three(3)
    end type
    type(crossdock_object) :: object
    type(s_type), pointer :: s
    real(real32), pointer :: a(:)
    integer :: stat, i
    call open_object(object, 's', '{i32,f64,i32[3]}', mode())
    call check(object%size == c_sizeof(s_type(0, 0, 0)), 'the struct has its size')
    call c_f_pointer(object%address, s)
    call open_object(object, 'a', 'f32[512]', mode())
    call object%view(a, stat)
    call ok(stat, 'view')
    call check(size(a) == 512, '512 elements')
    if (first()) then
      s = s_type(7, 2.5d0, [1, 2, 3])
      a = [(real(i, real32) / 2, i = 0, 511)]
      call ends_well(start('B'))
      call check(abs(s%d + 2.5d0) < tiny(s%d) .and. s%i == 7, 'the struct was changed')
      call check(abs(a(512) - 1) < tiny(a) .and. abs(a(511) - 255) < tiny(a), 'the array was changed')
    else
      call check(s%i == 7 .and. abs(s%d - 2.5d0) < tiny(s%d) .and. all(s%three == [1, 2, 3]), 'the struct')
      call check(all(abs(a - [(real(i, real32) / 2, i = 0, 511)]) < tiny(a)), 'the array')
      s%d = -2.5d0
      a(512) = 1
    end if
  end subroutine

  subroutine r4()
    type(crossdock_object) :: v
    real(real64), pointer :: x(:)
    integer :: stat, i
    call open_object(v, 'v', 'vector<f64>', mode())
    call v%view(x, stat)
    call ok(stat, 'view')
    if (.not. first()) then
      call check(size(x) == 1000 .and. abs(x(1000) - 999) < tiny(x), '1000 elements')
      call v%resize(100000, stat)
      call ok(stat, 'resize')
      return
    end if
    call check(size(x) == 0, 'new is empty')
    call v%resize(1000, stat)
    call ok(stat, 'resize')
    call v%view(x, stat)
    x = [(real(i, real64), i = 0, 999)]
    call ends_well(start('B'))
    call v%view(x, stat)
    call ok(stat, 'view')
    call check(size(x) == 100000, '100 000 elements')
    call check(all(abs(x(1:1000) - [(real(i, real64), i = 0, 999)]) < tiny(x)), 'the first are as they were')
    call check(all(abs(x(1001:)) < tiny(x)), 'the others are zero')
    call v%resize(10, stat)
    call ok(stat, 'resize')
    call v%view(x, stat)
    call check(size(x) == 10 .and. abs(x(10) - 9) < tiny(x), 'ten are left')
  end subroutine

  subroutine r5()
    type(crossdock_object) :: s
    character(:), allocatable :: text
    integer :: stat
    call open_object(s, 's', 'string', mode())
    call s%text(text, stat)
    call ok(stat, 'text')
    if (.not. first()) then
      call check(text == 'crossdock' .and. len(text) == 9, 'crossdock')
      call s%assign(repeat('x', 1000), stat)
      call ok(stat, 'assign')
      return
    end if
    call check(len(text) == 0, 'new is empty')
    call s%assign('crossdock', stat)
    call ok(stat, 'assign')
    call ends_well(start('B'))
    call s%text(text, stat)
    call check(text == repeat('x', 1000) .and. len(text) == 1000, '1000 x')
    call s%assign('', stat)
    call s%text(text, stat)
    call check(len(text) == 0, 'empty again')
  end subroutine

  subroutine r6()
    type(crossdock_object) :: arrays(2)
    real(real32), pointer :: c(:, :, :), f(:, :, :)
    integer(int64), allocatable :: shape_there(:)
    integer :: stat, order, i, j, k
    call open_region()
    call region%ndarray('c', 'f32', [3, 4, 5], arrays(1), stat, order=CROSSDOCK_ORDER_C, mode=mode())
    call ok(stat, 'ndarray c')
    call region%ndarray('f', 'f32', [3, 4, 5], arrays(2), stat, mode=mode())
    call ok(stat, 'ndarray f')
    call arrays(1)%order_and_shape(order, shape_there, stat)
    call check(stat == 0 .and. order == CROSSDOCK_ORDER_C .and. all(shape_there == [3, 4, 5]), 'order and shape of c')
    call arrays(2)%order_and_shape(order, shape_there, stat)
    call check(stat == 0 .and. order == CROSSDOCK_ORDER_FORTRAN .and. all(shape_there == [3, 4, 5]), &
               'order and shape of f')
    call arrays(1)%view(c, stat)
    call ok(stat, 'view c')
    call arrays(2)%view(f, stat)
    call ok(stat, 'view f')
    call check(all(shape(c) == [5, 4, 3]) .and. all(shape(f) == [3, 4, 5]), 'C order is seen reversed')
    do i = 1, 3
      do j = 1, 4
        do k = 1, 5
          associate (v => real(100 * (i - 1) + 10 * (j - 1) + k - 1, real32))
            if (first()) then
              c(k, j, i) = v
              f(i, j, k) = v
            else
              call check(abs(c(k, j, i) - v) < tiny(v) .and. abs(f(i, j, k) - v) < tiny(v), 'an element')
            end if
          end associate
        end do
      end do
    end do
    if (.not. first()) then
      call arrays(1)%reshape([6, 10], stat, order=CROSSDOCK_ORDER_C)
      call ok(stat, 'reshape')
      return
    end if
    call ends_well(start('B'))
    call arrays(1)%order_and_shape(order, shape_there, stat)
    call check(size(shape_there) == 2, 'rank 2')
    call check(all(shape_there == [6, 10]), 'shape (6,10)')
    call arrays(1)%view(c, stat)
    call want(CROSSDOCK_WRONG_TYPE, stat, 'a view of another rank')
  end subroutine

  subroutine r7()
    type(crossdock_object) :: other
    integer(int32), pointer :: n
    integer :: stat
    n => integer_of('n', CROSSDOCK_CREATE_ONLY)
    n = 5
    call region%object('n', 'f64', other, stat)
    call want(CROSSDOCK_WRONG_TYPE, stat, 'n as f64')
    call says('n')
    call says('i32')
    call says('f64')
    call check(n == 5, 'n is untouched')
  end subroutine

  subroutine r8()
    type(crossdock_object) :: late
    integer(int64) :: begin, took
    integer(c_int) :: b
    integer :: stat
    call open_region()
    if (.not. first()) then
      call tell_test('ready')
      call expect_test('go')
      begin = peer_now_ms()
      do while (peer_now_ms() - begin < 200)
      end do
      call open_object(late, 'late', 'i32', CROSSDOCK_CREATE_ONLY)
      return
    end if
    begin = peer_now_ms()
    call region%object('late', 'i32', late, stat, mode=CROSSDOCK_OPEN_ONLY)
    call want(CROSSDOCK_NOT_FOUND, stat, 'no waiting')
    call check(peer_now_ms() - begin < 100, 'at once')
    begin = peer_now_ms()
    call region%object('late', 'i32', late, stat, mode=CROSSDOCK_OPEN_ONLY, timeout_ms=200)
    took = peer_now_ms() - begin
    call want(CROSSDOCK_TIMED_OUT, stat, '200 ms')
    call says('late')
    call check(took >= 199 .and. took < 2000, 'after its deadline')
    b = start('B')
    call expect(b, 'ready')
    call tell(b, 'go')
    call region%object('late', 'i32', late, stat, mode=CROSSDOCK_OPEN_ONLY, timeout_ms=WAIT)
    call ok(stat, 'found')
    call ends_well(b)
  end subroutine

  subroutine r9()
    type(crossdock_object) :: again
    integer(int32), pointer :: n
    integer :: stat
    n => integer_of('n', CROSSDOCK_CREATE_ONLY)
    n = 5
    call region%object('n', 'i32', again, stat, mode=CROSSDOCK_CREATE_ONLY)
    call want(CROSSDOCK_EXISTS, stat, 'again')
    call says('n')
    call check(n == 5, 'n is untouched')
  end subroutine

  subroutine r10()
    type(crossdock_object) :: v, other
    type(crossdock_handle) :: handle
    type(crossdock_region) :: copy
    real(real64), pointer :: x(:)
    character(40) :: text
    character(:), allocatable :: unopened
    integer(int64) :: count
    integer :: stat, i
    call open_session()
    if (.not. first()) then
      read (argument, *) handle%segment, handle%offset
      call session%load(handle, 'vector<f64>', region, v, stat)
      call ok(stat, 'load')
      call v%view(x, stat)
      call ok(stat, 'view')
      call check(all(nint(x) == [1, 2, 3]), '1, 2, 3')
      call check(v%handle == handle, 'the same handle')
      call other%text(unopened, stat)
      call want(CROSSDOCK_INVALID, stat, 'the text of an object that was not opened')
      call other%assign('text', stat)
      call want(CROSSDOCK_INVALID, stat, 'a text for an object that was not opened')
      call other%elements(count, stat)
      call want(CROSSDOCK_INVALID, stat, 'the elements of an object that was not opened')
      call region%load(handle, 'vector<i32>', other, stat)
      call want(CROSSDOCK_WRONG_TYPE, stat, 'as vector<i32>')
      ! Each load gives up the reference that the variable had before, so one `free` after the loop is enough.
      do i = 1, 3
        call session%load(handle, 'vector<f64>', region, v, stat)
        call ok(stat, 'load again')
      end do
      copy = region
      call region%free()
      call copy%id(count, stat)
      call check(stat /= CROSSDOCK_OK, 'no reference is left')
      return
    end if
    call open_object(v, 'v', 'vector<f64>', CROSSDOCK_CREATE_ONLY)
    call v%resize(3, stat)
    call v%view(x, stat)
    x = [1, 2, 3]
    write (text, '(i0, 1x, i0)') v%handle%segment, v%handle%offset
    call ends_well(start('B', trim(text)))
  end subroutine

  subroutine r11()
    type(crossdock_region) :: other
    type(crossdock_object) :: good, foreign, freed, loaded
    type(crossdock_handle) :: bad(6)
    integer :: stat, i
    call open_session()
    call session%region(name_of('b'), other, stat, mode=CROSSDOCK_CREATE_ONLY, size=16 * MIB)
    call ok(stat, 'region b')
    call open_object(good, 'good', 'f64[8]', CROSSDOCK_CREATE_ONLY)
    call open_object(freed, 'freed', 'f64[8]', CROSSDOCK_CREATE_ONLY)
    call other%object('n', 'f64[8]', foreign, stat)
    call ok(stat, 'object')
    call region%remove('freed', stat)
    call ok(stat, 'remove')
    bad(1) = foreign%handle
    bad(2) = freed%handle
    bad(3) = crossdock_handle(good%handle%segment, good%handle%offset + 8)
    bad(4) = crossdock_handle(good%handle%segment, 1099511627776_int64)
    bad(5) = crossdock_handle(-7046029254386353131_int64, -4658895280553007687_int64)
    bad(6) = crossdock_handle(0, 0)
    do i = 1, 6
      call region%load(bad(i), 'f64[8]', loaded, stat)
      call want(CROSSDOCK_BAD_HANDLE, stat, 'bad handle ' // achar(iachar('0') + i))
    end do
    call region%load(good%handle, 'f64[8]', loaded, stat)
    call ok(stat, 'a good one')
  end subroutine

  subroutine r12()
    type(crossdock_region_statistics) :: before, after
    type(crossdock_object) :: o
    integer :: stat, i
    call open_region()
    call region%remove('o', stat)
    call want(CROSSDOCK_NOT_FOUND, stat, 'remove of nothing')
    call region%statistics(before, stat)
    do i = 1, 100
      call open_object(o, 'o', 'vector<f64>', CROSSDOCK_CREATE_ONLY)
      call o%resize(1000, stat)
      call ok(stat, 'resize')
      call region%remove('o', stat)
      call ok(stat, 'remove')
      call open_object(o, 'o', 'i32', CROSSDOCK_CREATE_ONLY)
      call region%remove('o', stat)
      call ok(stat, 'remove')
    end do
    call region%statistics(after, stat)
    call check(before%used == after%used .and. before%objects == after%objects, 'memory is as before')
  end subroutine

  subroutine r13()
    type(crossdock_region) :: small
    type(crossdock_object) :: v, block
    integer(int64) :: elements
    integer :: stat, count, i
    call open_session()
    call session%region(name_of('b'), small, stat, mode=CROSSDOCK_CREATE_ONLY, size=MIB)
    call ok(stat, 'region b')
    call small%object('v', 'vector<u8>', v, stat)
    call v%resize(100, stat)
    call ok(stat, 'resize')
    call v%resize(4 * MIB, stat)
    call want(CROSSDOCK_NO_SPACE, stat, 'resize to 4 MiB')
    call v%elements(elements, stat)
    call check(elements == 100, 'the vector is as it was')
    count = 0
    do
      call small%object('o' // achar(iachar('a') + count), 'u8[65536]', block, stat)
      if (stat /= CROSSDOCK_OK) exit
      count = count + 1
      call check(count < 26, 'it becomes full')
    end do
    call want(CROSSDOCK_NO_SPACE, stat, 'full')
    call check(count > 1, 'some fit')
    do i = 0, count - 1, 2
      call small%remove('o' // achar(iachar('a') + i), stat)
      call ok(stat, 'remove')
    end do
    call small%object('again', 'u8[65536]', block, stat)
    call ok(stat, 'one more fits')
  end subroutine

  subroutine r14()
    type(crossdock_region) :: old, new
    type(crossdock_object) :: object, other
    integer(int32), pointer :: n
    integer(int64) :: old_id, new_id
    integer :: stat
    call open_session()
    call session%region(name_of(''), old, stat, mode=CROSSDOCK_CREATE_ONLY, size=16 * MIB)
    call ok(stat, 'region')
    call old%object('n', 'i32', object, stat)
    call object%view(n, stat)
    call session%remove_region(name_of(''), stat)
    call ok(stat, 'remove')
    n = 5
    call old%object('n', 'i32', other, stat, mode=CROSSDOCK_OPEN_ONLY)
    call ok(stat, 'still there')
    call session%region(name_of(''), new, stat, mode=CROSSDOCK_OPEN_ONLY)
    call want(CROSSDOCK_NOT_FOUND, stat, 'the name')
    call session%region(name_of(''), new, stat, mode=CROSSDOCK_CREATE_ONLY, size=16 * MIB)
    call ok(stat, 'a new one')
    call old%id(old_id, stat)
    call new%id(new_id, stat)
    call check(old_id /= new_id, 'another id')
    call new%load(object%handle, 'i32', other, stat)
    call want(CROSSDOCK_BAD_HANDLE, stat, 'the old handle')
  end subroutine

  subroutine r15()
    type(crossdock_region) :: made, again, larger
    integer(int64) :: made_id, again_id
    integer :: stat
    call open_session()
    call session%region(name_of(''), made, stat, size=16 * MIB)
    call ok(stat, 'region')
    call session%region(name_of(''), again, stat, size=16 * MIB)
    call ok(stat, 'the same size')
    call made%id(made_id, stat)
    call again%id(again_id, stat)
    call check(made_id == again_id, 'the same id')
    call session%region(name_of(''), larger, stat, size=16 * MIB + 4096)
    call want(CROSSDOCK_INVALID, stat, 'a larger one')
    call says('16777216')
    call says('16781312')
  end subroutine

  subroutine r16()
    type(crossdock_region) :: made, again
    type(crossdock_object) :: v
    type(crossdock_handle) :: handle
    real(real64), pointer :: x(:)
    integer(int64) :: made_id, again_id
    character(40) :: text
    integer :: stat
    call open_session()
    if (.not. first()) then
      read (argument, *) handle%segment, handle%offset
      call session%move_region(name_of('b'), made, stat, timeout_ms=20000)
      call ok(stat, 'move')
      call made%load(handle, 'vector<f64>', v, stat)
      call ok(stat, 'load')
      call v%view(x, stat)
      call check(all(nint(x) == [1, 2, 3]), '1, 2, 3')
      call session%move_region(name_of('b'), again, stat)
      call ok(stat, 'move again')
      call made%id(made_id, stat)
      call again%id(again_id, stat)
      call check(made_id == again_id, 'the same id')
      call session%copy_region(name_of('b'), name_of('b'), again, stat, timeout_ms=100)
      call want(CROSSDOCK_INVALID, stat, 'a copy of the same name')
      call session%move_region(name_of('c'), again, stat, timeout_ms=100)
      call want(CROSSDOCK_NOT_FOUND, stat, 'nothing to move')
      call session%remove_region(name_of('b'), stat)
      call ok(stat, 'remove')
      return
    end if
    call session%region(name_of('b'), made, stat, mode=CROSSDOCK_CREATE_ONLY, size=16 * MIB)
    call ok(stat, 'region')
    call made%object('v', 'vector<f64>', v, stat)
    call ok(stat, 'v')
    call v%resize(3, stat)
    call v%view(x, stat)
    x = [1, 2, 3]
    write (text, '(i0, 1x, i0)') v%handle%segment, v%handle%offset
    call made%free()
    call ends_well(start('B', trim(text)))
  end subroutine

  subroutine r17()
    type(crossdock_object) :: object
    real(real64), pointer :: f(:, :, :)
    integer(int64), allocatable :: shape_there(:)
    integer :: stat, order, i, j, k
    call open_region()
    call region%ndarray('f', 'f64[3]', [2, 3], object, stat, mode=mode())
    call ok(stat, 'ndarray f')
    call object%order_and_shape(order, shape_there, stat)
    call check(stat == 0 .and. order == CROSSDOCK_ORDER_FORTRAN .and. all(shape_there == [2, 3]), 'order and shape')
    call object%view(f, stat)
    call ok(stat, 'view f')
    call check(all(shape(f) == [3, 2, 3]), 'the dimension of the elements comes first')
    do j = 1, 3
      do i = 1, 2
        do k = 1, 3
          associate (v => real(100 * (i - 1) + 10 * (j - 1) + k - 1, real64))
            if (first()) f(k, i, j) = v
            call check(abs(f(k, i, j) - v) < tiny(v), 'an element')
          end associate
        end do
      end do
    end do
    if (first()) then
      call ends_well(start('B'))
      call check(all(abs(f(:, 2, 3) - [-1, -2, -3]) < tiny(f)), 'the last element')
    else
      f(:, 2, 3) = [-1, -2, -3]
    end if
  end subroutine

  subroutine e1()
    type(crossdock_region) :: r
    type(crossdock_object) :: o
    type(crossdock_port) :: p
    character(:), allocatable :: bad
    integer :: stat, i
    call open_region()
    do i = 1, 5
      select case (i)
      case (1)
        bad = ''
      case (2)
        bad = repeat('x', 128)
      case (3)
        bad = 'a b'
      case (4)
        bad = '/a'
      case (5)
        bad = 'a/../b'
      end select
      call session%region(bad, r, stat)
      call want(CROSSDOCK_INVALID, stat, 'region ' // bad)
      call region%object(bad, 'i32', o, stat)
      call want(CROSSDOCK_INVALID, stat, 'object ' // bad)
      call session%port(bad, CROSSDOCK_PRODUCER, p, stat)
      call want(CROSSDOCK_INVALID, stat, 'port ' // bad)
      call check(len(crossdock_error_message()) > 0, 'there is a message')
    end do
  end subroutine

  subroutine e2()
    type(crossdock_region) :: r
    type(crossdock_object) :: o
    integer :: stat
    call open_region()
    call session%region(name_of('b'), r, stat, mode=CROSSDOCK_CREATE_ONLY, size=0_int64)
    call want(CROSSDOCK_INVALID, stat, '0 bytes')
    call session%region(name_of('b'), r, stat, mode=CROSSDOCK_CREATE_ONLY, size=ishft(1_int64, 60))
    call check(stat == CROSSDOCK_NO_SPACE .or. stat == CROSSDOCK_INVALID, '2^60 bytes')
    call session%region(name_of('s'), r, stat, size=1048576_int64)
    call want(CROSSDOCK_OK, stat, '1 MiB')
    call session%region(name_of('s'), r, stat)
    call want(CROSSDOCK_OK, stat, 'a region of another size, without a size')
    call session%region(name_of('s'), r, stat, size=2097152_int64)
    call want(CROSSDOCK_INVALID, stat, 'more than it has')
    call region%object('o', 'f65', o, stat)
    call want(CROSSDOCK_INVALID, stat, 'f65')
    call says('f65')
  end subroutine

  subroutine e3()
    type(crossdock_session) :: none
    integer(int64) :: begin
    integer :: stat
    begin = peer_now_ms()
    call none%connect(stat, socket='/nonexistent/crossdock/endpoint.sock', private_daemon=.false.)
    call want(CROSSDOCK_NOT_FOUND, stat, 'no daemon')
    call says('/nonexistent/crossdock/endpoint.sock')
    call check(peer_now_ms() - begin < 2000, 'at once')
  end subroutine

  subroutine e4()
    integer :: n, stat
    call open_session()
    call session%progress(11, 10, stat)
    call want(CROSSDOCK_INVALID, stat, 'more than all')
    call says('11 of 10')
    do n = 1, 1000
      call session%progress(n, 1000, stat)
      call ok(stat, 'progress')
    end do
    call session%progress(0_int64, 0_int64, stat)
    call ok(stat, 'no progress')
  end subroutine
end module
