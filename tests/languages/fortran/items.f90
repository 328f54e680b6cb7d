! Tests rows I1 to I16 of the table in ../conformance.md: items. The tests see the bytes of an item as 32-bit numbers, so
! sizes are multiples of 4.
module items
  use suite
  use crossdock_items
  use regions, only: open_object
  implicit none
contains

  subroutine create(item, bytes, suffix, value, level, on_death)
    type(crossdock_item), intent(inout) :: item
    integer, intent(in) :: bytes
    character(*), intent(in) :: suffix
    integer, intent(in), optional :: value, level, on_death
    integer :: stat
    call open_session()
    call item%create(session, name_of(suffix), int(bytes, int64), stat, level=level, on_death=on_death)
    call ok(stat, 'create')
    if (present(value)) call fill(item, value)
  end subroutine

  subroutine take_item(item, suffix)
    type(crossdock_item), intent(inout) :: item
    character(*), intent(in) :: suffix
    integer :: stat
    call open_session()
    call item%access(session, name_of(suffix), stat, timeout_ms=WAIT)
    call ok(stat, 'access')
  end subroutine

  subroutine fill(item, value)
    type(crossdock_item), intent(in) :: item
    integer, intent(in) :: value
    integer(int32), pointer :: x(:)
    integer :: stat
    call item%view(x, stat)
    call ok(stat, 'view')
    x = value
  end subroutine

  subroutine all_are(item, value, from)
    type(crossdock_item), intent(in) :: item
    integer, intent(in) :: value
    integer, intent(in), optional :: from
    integer(int32), pointer :: x(:)
    integer :: stat, lower
    lower = 1
    if (present(from)) lower = from
    call item%view(x, stat)
    call ok(stat, 'view')
    call check(all(x(lower:) == value), 'all numbers are as they were written')
  end subroutine

  subroutine hand(item, to)
    type(crossdock_item), intent(inout) :: item
    character(*), intent(in) :: to
    integer :: stat
    call item%transfer(to, stat)
    call ok(stat, 'transfer')
    call item%free()
  end subroutine

  subroutine destroy(item)
    type(crossdock_item), intent(inout) :: item
    integer :: stat
    call item%destroy(stat)
    call ok(stat, 'destroy')
    call item%free()
  end subroutine

  subroutine belongs_to(task, suffix)
    character(*), intent(in) :: task, suffix
    type(crossdock_item_info) :: info
    character(:), allocatable :: owner
    integer :: stat, slash
    call crossdock_item_find(session, name_of(suffix), info, stat)
    call ok(stat, 'find')
    owner = crossdock_item_owner_text(info)
    slash = index(owner, '/')
    if (slash > 0) owner = owner(1:slash - 1)
    call check(owner == task, 'the owner is ' // task)
    call check((info%mine /= 0) .eqv. (task == 'test'), 'mine')
    call check(crossdock_item_key_text(info) == name_of(suffix), 'the key')
  end subroutine

  subroutine pause(ms)
    integer, intent(in) :: ms
    integer(c_long_long) :: until
    until = peer_now_ms() + ms
    do while (peer_now_ms() < until)
    end do
  end subroutine

  subroutine i1()
    type(crossdock_item) :: item, other
    type(crossdock_item_info) :: info
    logical :: writable
    integer :: stat
    call open_session()
    call crossdock_item_find(session, name_of(''), info, stat)
    call want(CROSSDOCK_NOT_FOUND, stat, 'find')
    call create(item, 10000, '')
    call all_are(item, 0)
    call item%writable(writable, stat)
    call ok(stat, 'writable')
    call check(writable, 'writable')
    call belongs_to('test', '')
    call crossdock_item_find(session, name_of(''), info, stat)
    call check(info%size == 10000, 'size')
    call other%create(session, name_of(''), 10000_int64, stat)
    call want(CROSSDOCK_EXISTS, stat, 'create again')
    call says(name_of(''))
    call says('test')
    call destroy(item)
    call crossdock_item_find(session, name_of(''), info, stat)
    call want(CROSSDOCK_NOT_FOUND, stat, 'find')
    call create(item, 10000, '')
    call destroy(item)
  end subroutine

  subroutine i2()
    type(crossdock_item) :: item
    integer, parameter :: levels(3) = [CROSSDOCK_VERIFIED, CROSSDOCK_STRICT, CROSSDOCK_COOPERATIVE]
    character(1), parameter :: suffixes(3) = ['a', 'b', 'c']
    integer(int32), pointer :: x(:)
    integer(c_int) :: b
    integer :: stat, i
    b = 0
    if (first()) b = start('B')
    do i = 1, 3
      if (first()) then
        call create(item, 1000000, suffixes(i), value=7, level=levels(i))
        call hand(item, 'peer')
        call take_item(item, suffixes(i))
        call item%view(x, stat)
        call check(x(1) == 9, 'the first number')
        call all_are(item, 7, from=2)
        call destroy(item)
      else
        call take_item(item, suffixes(i))
        call all_are(item, 7)
        call item%view(x, stat)
        call check(size(x) == 250000, 'the size')
        x(1) = 9
        call hand(item, 'test')
      end if
    end do
    if (first()) call ends_well(b)
  end subroutine

  subroutine i3()
    type(crossdock_item) :: item
    if (first()) then
      call create(item, 5000, '', value=4)
      call hand(item, 'peer')
      call belongs_to('peer', '')
      call ends_well(start('B'))
    else
      call take_item(item, '')
      call all_are(item, 4)
      call destroy(item)
    end if
  end subroutine

  subroutine i4()
    type(crossdock_item) :: item
    integer(c_long_long) :: begun, took
    integer(c_int) :: b
    if (first()) then
      b = start('B')
      call expect(b, 'made')
      call tell(b, 'go')
      begun = peer_now_ms()
      call take_item(item, '')
      took = peer_now_ms() - begun
      call check(took >= 150 .and. took <= 2000, 'it came after 200 ms')
      call destroy(item)
      call ends_well(b)
    else
      call create(item, 4096, '')
      call tell_test('made')
      call expect_test('go')
      call pause(200)
      call hand(item, 'test')
    end if
  end subroutine

  subroutine i5()
    type(crossdock_item) :: item
    integer(c_long_long) :: begun, took
    integer(c_int) :: b
    integer :: stat
    if (first()) then
      b = start('B')
      call expect(b, 'made')
      call open_session()
      call item%access(session, name_of(''), stat, timeout_ms=0)
      call want(CROSSDOCK_NOT_YET, stat, 'a poll')
      begun = peer_now_ms()
      call item%access(session, name_of(''), stat, timeout_ms=200)
      took = peer_now_ms() - begun
      call want(CROSSDOCK_TIMED_OUT, stat, 'access')
      call check(took >= 190 .and. took <= 2000, 'after 200 ms')
      call says(name_of(''))
      call says('peer')
      call tell(b, 'done')
      call ends_well(b)
    else
      call create(item, 4096, '')
      call tell_test('made')
      call expect_test('done')
      call destroy(item)
    end if
  end subroutine

  subroutine i6()
    type(crossdock_item) :: item, copy
    type(crossdock_region) :: heap
    integer(int32), pointer :: x(:)
    integer :: stat
    if (first()) then
      call create(item, 4096, '', value=8)
      call item%transfer('peer', stat)
      call ok(stat, 'transfer')
      call item%view(x, stat)
      call want(CROSSDOCK_CLOSED, stat, 'view')
      call says('peer')
      call check(.not. associated(x), 'no view of it')
      call item%transfer('test', stat)
      call want(CROSSDOCK_CLOSED, stat, 'transfer')
      call item%copy(name_of('b'), copy, stat)
      call want(CROSSDOCK_CLOSED, stat, 'copy')
      call item%resize(12_int64, stat)
      call want(CROSSDOCK_CLOSED, stat, 'resize')
      call item%share(stat)
      call want(CROSSDOCK_CLOSED, stat, 'share')
      call item%unshare(stat, timeout_ms=0)
      call want(CROSSDOCK_CLOSED, stat, 'unshare')
      call item%region(heap, stat)
      call want(CROSSDOCK_CLOSED, stat, 'region')
      call item%destroy(stat)
      call want(CROSSDOCK_CLOSED, stat, 'destroy')
      call item%free()
      call item%view(x, stat)
      call want(CROSSDOCK_INVALID, stat, 'view of nothing')
      call ends_well(start('B'))
    else
      call take_item(item, '')
      call all_are(item, 8)
      call destroy(item)
    end if
  end subroutine

  subroutine i7()
    type(crossdock_item) :: item, copy, third
    integer :: stat
    call create(item, 100000, '', value=5)
    call item%copy(name_of('b'), copy, stat)
    call ok(stat, 'copy')
    call item%copy(name_of('b'), third, stat)
    call want(CROSSDOCK_EXISTS, stat, 'copy again')
    call fill(item, 6)
    call all_are(copy, 5)
    call destroy(item)
    call all_are(copy, 5)
    call belongs_to('test', 'b')
    call destroy(copy)
  end subroutine

  subroutine i8()
    type(crossdock_item) :: item
    type(crossdock_item_info) :: info
    logical :: writable
    integer(c_int) :: b
    integer :: stat
    if (first()) then
      call create(item, 50000, '', value=3)
      call item%share(stat)
      call ok(stat, 'share')
      call item%writable(writable, stat)
      call check(.not. writable, 'shared, so not writable')
      call all_are(item, 3)
      b = start('B')
      call expect(b, 'reading')
      call crossdock_item_find(session, name_of(''), info, stat)
      call check(info%state == CROSSDOCK_ITEM_SHARED .and. info%readers == 2, 'two readers, the owner one of them')
      call tell(b, 'let go')
      call expect(b, 'gone')
      call item%unshare(stat, timeout_ms=WAIT)
      call ok(stat, 'unshare')
      call item%writable(writable, stat)
      call check(writable, 'writable again')
      call all_are(item, 3)
      call fill(item, 4)
      call tell(b, 'again')
      call ends_well(b)
      call destroy(item)
    else
      call open_session()
      call item%read(session, name_of(''), stat, timeout_ms=WAIT)
      call ok(stat, 'read')
      call all_are(item, 3)
      call item%writable(writable, stat)
      call check(.not. writable, 'not writable')
      call item%transfer('peer', stat)
      call want(CROSSDOCK_DENIED, stat, 'transfer by a reader')
      call tell_test('reading')
      call expect_test('let go')
      call item%free()
      call tell_test('gone')
      call expect_test('again')
      call item%read(session, name_of(''), stat, timeout_ms=0)
      call want(CROSSDOCK_NOT_YET, stat, 'read')
    end if
  end subroutine

  subroutine i9()
    type(crossdock_item) :: item
    integer(int32), pointer :: x(:)
    integer :: stat
    call create(item, 4096, '', value=5)
    call item%resize(1000000_int64, stat)
    call ok(stat, 'resize')
    call item%view(x, stat)
    call check(size(x) == 250000 .and. all(x(:1024) == 5) .and. all(x(1025:) == 0), 'larger')
    call item%resize(100_int64, stat)
    call ok(stat, 'resize')
    call item%view(x, stat)
    call check(size(x) == 25 .and. all(x == 5), 'smaller')
    call item%resize(0_int64, stat)
    call want(CROSSDOCK_INVALID, stat, 'resize to nothing')
    call all_are(item, 5)
    call destroy(item)
  end subroutine

  subroutine i10()
    type(crossdock_item) :: item, other
    type(crossdock_item_info) :: info
    real(real64), pointer :: y(:, :)
    integer :: stat, i
    character(3), parameter :: bad(3) = [character(3) :: '', 'a b', '#x']
    call open_session()
    call item%create(session, name_of(''), 0_int64, stat)
    call want(CROSSDOCK_INVALID, stat, 'size 0')
    call item%create(session, name_of(''), 2_int64**60, stat)
    call check(stat == CROSSDOCK_NO_SPACE .or. stat == CROSSDOCK_INVALID, 'size 2**60')
    call item%create(session, 'a b', 10_int64, stat)
    call want(CROSSDOCK_INVALID, stat, 'key')
    call item%create(session, '', 10_int64, stat)
    call want(CROSSDOCK_INVALID, stat, 'no key')
    call item%create(session, name_of(''), 10_int64, stat, level=7)
    call want(CROSSDOCK_INVALID, stat, 'level')
    call create(item, 4096, '', value=2)
    do i = 1, 3
      call item%transfer(trim(bad(i)), stat)
      call want(CROSSDOCK_INVALID, stat, 'transfer')
    end do
    call all_are(item, 2)
    call belongs_to('test', '')
    call item%view(y, [16, 32], stat)
    call ok(stat, 'a matrix')
    call item%view(y, [17, 32], stat)
    call want(CROSSDOCK_INVALID, stat, 'too large a matrix')
    call crossdock_item_find(session, name_of('b'), info, stat)
    call want(CROSSDOCK_NOT_FOUND, stat, 'find')
    call other%access(session, name_of('b'), stat, timeout_ms=0)
    call want(CROSSDOCK_NOT_FOUND, stat, 'access')
    call destroy(item)
  end subroutine

  subroutine i11()
    type(crossdock_item) :: item, again
    integer :: stat
    call create(item, 4096, '', value=6)
    call again%access(session, name_of(''), stat, timeout_ms=0)
    call want(CROSSDOCK_BUSY, stat, 'access twice')
    call item%free()
    call take_item(item, '')
    call all_are(item, 6)
    call destroy(item)
  end subroutine

  subroutine i12()
    type(crossdock_item) :: item
    integer(c_int) :: b
    integer :: stat
    if (first()) then
      call create(item, 4096, '')
      b = start('B')
      call expect(b, 'waiting')
      call pause(200)
      call destroy(item)
      call ends_well(b)
    else
      call open_session()
      call tell_test('waiting')
      call item%access(session, name_of(''), stat, timeout_ms=WAIT)
      call want(CROSSDOCK_NOT_FOUND, stat, 'access')
    end if
  end subroutine

  subroutine i13()
    type(crossdock_item) :: item, second, third
    character(60) :: keys(3)
    integer(c_int) :: b
    integer :: stat, index
    if (first()) then
      b = start('B')
      call expect(b, 'made')
      keys(1) = name_of('')
      keys(2) = name_of('b')
      keys(3) = name_of('c')
      call open_session()
      call item%access_any(session, keys, index, stat, timeout_ms=WAIT)
      call ok(stat, 'access_any')
      call check(index == 2, 'the second one')
      call third%access_any(session, keys(1:0), index, stat)
      call want(CROSSDOCK_INVALID, stat, 'none of none')
      call tell(b, 'done')
      call destroy(item)
      call ends_well(b)
    else
      call create(item, 4096, '')
      call create(second, 4096, 'b')
      call create(third, 4096, 'c')
      call tell_test('made')
      call pause(200)
      call hand(second, 'test')
      call expect_test('done')
      call destroy(item)
      call destroy(third)
    end if
  end subroutine

  subroutine open_heap(item, heap, v, mode)
    type(crossdock_item), intent(in) :: item
    type(crossdock_region), intent(inout) :: heap
    type(crossdock_object), intent(inout) :: v
    integer, intent(in) :: mode
    integer :: stat
    call item%region(heap, stat, mode=mode)
    call ok(stat, 'heap')
    call heap%object('v', 'vector<f64>', v, stat, mode=mode)
    call ok(stat, 'vector')
  end subroutine

  subroutine i14()
    type(crossdock_item) :: item
    type(crossdock_region) :: heap
    type(crossdock_object) :: v
    real(real64), pointer :: x(:)
    integer(c_int) :: b
    integer :: stat, i
    if (first()) then
      call create(item, 4194304, '')
      call open_heap(item, heap, v, CROSSDOCK_CREATE_ONLY)
      call v%resize(1000, stat)
      call v%view(x, stat)
      x = [(real(i, real64), i = 1, 1000)]
      call item%transfer('peer', stat)
      call want(CROSSDOCK_BUSY, stat, 'transfer with an open heap')
      call heap%free()
      call hand(item, 'peer')
      b = start('B')
      call take_item(item, '')
      call open_heap(item, heap, v, CROSSDOCK_OPEN_ONLY)
      call v%view(x, stat)
      call check(size(x) == 1001 .and. x(1001) == -1, 'one more')
      call heap%free()
      call destroy(item)
      call ends_well(b)
    else
      call take_item(item, '')
      call open_heap(item, heap, v, CROSSDOCK_OPEN_ONLY)
      call v%view(x, stat)
      call check(size(x) == 1000 .and. sum(x) == 500500, 'the vector')
      call v%resize(1001, stat)
      call v%view(x, stat)
      x(1001) = -1
      call heap%free()
      call hand(item, 'test')
    end if
  end subroutine

  subroutine i15()
    type(crossdock_item) :: item, second, third
    type(crossdock_item_info) :: info
    integer(c_long_long) :: begun
    integer(c_int) :: b
    integer :: stat
    if (role == 'B') then
      call take_item(item, '')
      call take_item(second, 'b')
      call take_item(third, 'c')
      call tell_test('taken')
      call peer_die()
    else if (role == 'C') then
      call take_item(item, '')
      call destroy(item)
    else
      call create(item, 4096, '', on_death=CROSSDOCK_KEEP)
      call create(second, 4096, 'b', on_death=CROSSDOCK_RETURN)
      call create(third, 4096, 'c', on_death=CROSSDOCK_DESTROY)
      call hand(item, 'peer')
      call hand(second, 'peer')
      call hand(third, 'peer')
      b = start('B')
      call expect(b, 'taken')
      b = peer_end(b)
      begun = peer_now_ms()
      call take_item(second, 'b')
      call check(peer_now_ms() - begun <= 2000, 'returned within 2 s')
      call destroy(second)
      stat = CROSSDOCK_OK
      do while (stat == CROSSDOCK_OK .and. peer_now_ms() - begun <= 2000)
        call crossdock_item_find(session, name_of('c'), info, stat)
        call pause(10)
      end do
      call want(CROSSDOCK_NOT_FOUND, stat, 'find of the destroyed one')
      call belongs_to('peer', '')
      call ends_well(start('C'))
    end if
  end subroutine

  subroutine i16()
    type(crossdock_item) :: item
    integer(c_int) :: b
    integer(int64) :: number
    integer :: stat
    character(24) :: text
    if (first()) then
      call open_session()
      number = 4000 + mod(peer_now_ms(), 100000000_c_long_long) * 2
      call crossdock_register_number(session, number, stat)
      call ok(stat, 'register')
      write (text, '(a, i0)') '#', number
      b = start('B', trim(text))
      call take_item(item, '')
      call all_are(item, 1)
      call ends_well(b)
      write (text, '(a, i0)') '#', number + 1
      call hand(item, trim(text))
      call item%access(session, name_of(''), stat, timeout_ms=0)
      call want(CROSSDOCK_NOT_YET, stat, 'access')
      call crossdock_register_number(session, number + 1, stat)
      call ok(stat, 'register')
      call take_item(item, '')
      call destroy(item)
    else
      call create(item, 4096, '', value=1)
      call hand(item, argument)
    end if
  end subroutine
end module
