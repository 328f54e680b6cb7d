! Tests rows S1 to S19 of the table in ../conformance.md: series. Shapes are in Fortran's order: the
! shape (4,5) of the table is (5,4) here.
module series
  use suite
  use crossdock_checkpoints, only: crossdock_open
  implicit none
  public

contains

  !> Publishes the variable u of shape (5,4) and gets a pointer to it.
  subroutine publish_u(field, u, keep)
    type(crossdock_publisher), intent(inout) :: field
    real(real64), pointer, intent(out) :: u(:, :)
    integer, intent(in), optional :: keep
    integer :: stat
    call open_session()
    call field%variable('u', 'f64', [5, 4])
    call session%publisher(name_of(''), field, stat, keep=keep)
    call ok(stat, 'publisher')
    call field%view('u', u, stat)
    call ok(stat, 'view')
  end subroutine

  subroutine publish(field, expected)
    type(crossdock_publisher), intent(in) :: field
    integer, intent(in), optional :: expected
    integer(int64) :: sequence
    integer :: stat
    call field%publish(stat, sequence)
    call ok(stat, 'publish')
    if (present(expected)) call check(sequence == expected, 'the number of the version')
  end subroutine

  subroutine observe(observer)
    type(crossdock_observer), intent(inout) :: observer
    integer :: stat
    call open_session()
    call session%observe(name_of(''), observer, stat, timeout_ms=WAIT)
    call ok(stat, 'observe')
  end subroutine

  !> Checks that the latest version has this number (if it is > 0) and that all its elements have this value.
  subroutine latest_shows(observer, number, value)
    type(crossdock_observer), intent(in) :: observer
    integer, intent(in) :: number
    real(real64), intent(in) :: value
    type(crossdock_version) :: version
    integer :: stat
    call observer%latest(version, stat)
    call ok(stat, 'latest')
    call shows(version, number, value)
    call version%free()
  end subroutine

  subroutine shows(version, number, value)
    type(crossdock_version), intent(in) :: version
    integer, intent(in) :: number
    real(real64), intent(in) :: value
    real(real64), pointer :: u(:, :)
    integer(int64) :: sequence
    integer :: stat
    call version%sequence(sequence, stat)
    call ok(stat, 'sequence')
    call check(number == 0 .or. sequence == number, 'the version asked for')
    call version%view('u', u, stat)
    call ok(stat, 'view of a version')
    call check(all(u == value), 'what was published')
  end subroutine

  subroutine s1()
    type(crossdock_publisher) :: field
    type(crossdock_observer) :: observer
    type(crossdock_version) :: version
    real(real64), pointer :: u(:, :)
    integer(int32), pointer :: n
    integer(int64), allocatable :: shape(:)
    integer(int64) :: time_ns
    character(:), allocatable :: note
    real(real64) :: x
    integer :: stat, i, step
    if (first()) then
      call open_session()
      call field%variable('u', 'f64', [5, 4])
      call field%constant('u', 'dx', 0.5_real64)
      call field%variable('n', 'i32')
      call field%attribute('step', 'i64')
      call session%publisher(name_of(''), field, stat)
      call ok(stat, 'publisher')
      call field%view('u', u, stat)
      call ok(stat, 'view of u')
      call field%view('n', n, stat)
      call ok(stat, 'view of n')
      n = 7
      u = reshape([(real(i, real64), i=0, 19)], [5, 4])
      call field%set('step', 3)
      call field%set('time', 0.25_real64)
      call field%set('note', 'ab')
      call publish(field, 1)
      call ends_well(start('B'))
      return
    end if
    call observe(observer)
    call observer%constant('u', 'dx', x, stat)
    call ok(stat, 'dx')
    call check(x == 0.5_real64, 'dx')
    call observer%constant('u', 'dy', x, stat)
    call want(CROSSDOCK_NOT_FOUND, stat, 'dy')
    call observer%latest(version, stat)
    call ok(stat, 'latest')
    call version%view('u', u, stat)
    call ok(stat, 'view of u')
    call check(all(u == reshape([(real(i, real64), i=0, 19)], [5, 4])), 'u')
    call version%shape('u', shape, stat)
    call check(stat == CROSSDOCK_OK .and. all(shape == [5, 4]), 'shape of u')
    call version%view('n', n, stat)
    call ok(stat, 'view of n')
    call check(n == 7, 'n')
    call version%view('u', n, stat)
    call want(CROSSDOCK_WRONG_TYPE, stat, 'u as an integer')
    call version%attribute('step', step, stat)
    call check(stat == CROSSDOCK_OK .and. step == 3, 'step')
    call version%attribute('time', x, stat)
    call check(stat == CROSSDOCK_OK .and. x == 0.25_real64, 'time')
    call version%attribute('note', note, stat)
    call check(stat == CROSSDOCK_OK .and. note == 'ab', 'note')
    call version%time_ns(time_ns, stat)
    call check(stat == CROSSDOCK_OK .and. time_ns > 1700000000000000000_int64, 'time of publishing')
    call version%free()
    call observer%free()
  end subroutine

  subroutine s2()
    type(crossdock_publisher) :: field
    type(crossdock_observer) :: observer
    type(crossdock_version) :: held
    real(real64), pointer :: u(:, :), seen(:, :)
    integer :: stat, i, k
    call publish_u(field, u)
    call observe(observer)
    u = reshape([(real(i, real64), i=0, 19)], [5, 4])
    call publish(field)
    call observer%latest(held, stat)
    call ok(stat, 'latest')
    call held%view('u', seen, stat)
    call ok(stat, 'view')
    do k = 1, 20
      u = 100 * k
      call publish(field)
    end do
    call check(all(seen == reshape([(real(i, real64), i=0, 19)], [5, 4])), 'the held one is as it was')
    call latest_shows(observer, 21, 2000._real64)
    call held%refresh(stat)
    call ok(stat, 'refresh')
    call check(all(seen == 2000), 'the pointer of before holds again')
    call shows(held, 21, 2000._real64)
  end subroutine

  subroutine s3()
    type(crossdock_publisher) :: field
    type(crossdock_observer) :: observer
    type(crossdock_version) :: version
    real(real64), pointer :: u(:, :)
    integer(int64) :: began
    integer(c_int) :: b
    integer :: stat
    if (.not. first()) then
      call publish_u(field, u)
      call publish(field)
      call tell_test('one')
      call expect_test('two')
      call pause_ms(200)
      u = 2
      call publish(field)
      call expect_test('end')
      return
    end if
    b = start('B')
    call expect(b, 'one')
    call observe(observer)
    call observer%latest(version, stat)
    call ok(stat, 'latest')
    began = peer_now_ms()
    call observer%next(version, stat, timeout_ms=200)
    call want(CROSSDOCK_TIMED_OUT, stat, 'next')
    call check(peer_now_ms() - began >= 200 .and. peer_now_ms() - began < 2000, 'after 200 ms')
    call says(name_of(''))
    call observer%next(version, stat, timeout_ms=0)
    call want(CROSSDOCK_NOT_YET, stat, 'next without waiting')
    call tell(b, 'two')
    call observer%next(version, stat, timeout_ms=WAIT)
    call ok(stat, 'next')
    call shows(version, 2, 2._real64)
    call tell(b, 'end')
    call ends_well(b)
  end subroutine

  subroutine pause_ms(ms)
    integer, intent(in) :: ms
    integer(int64) :: until
    until = peer_now_ms() + ms
    do while (peer_now_ms() < until)
    end do
  end subroutine

  subroutine s4()
    type(crossdock_publisher) :: field
    type(crossdock_observer) :: observer
    type(crossdock_version) :: version
    real(real64), pointer :: u(:, :)
    integer :: stat, k
    call publish_u(field, u, keep=2)
    call observe(observer)
    do k = 1, 5
      u = k
      call publish(field)
    end do
    do k = 5, 3, -1
      call observer%at(int(k, int64), version, stat)
      call ok(stat, 'at')
      call shows(version, k, real(k, real64))
    end do
    call observer%at(1_int64, version, stat)
    call want(CROSSDOCK_NOT_FOUND, stat, 'at 1')
    call observer%at(9_int64, version, stat)
    call want(CROSSDOCK_NOT_YET, stat, 'at 9')
  end subroutine

  subroutine s5()
    type(crossdock_publisher) :: field
    type(crossdock_observer) :: observer
    real(real64), pointer :: u(:, :)
    integer(int64) :: began
    integer(c_int) :: b
    integer :: stat
    if (.not. first()) then
      call pause_ms(200)
      call publish_u(field, u)
      call publish(field)
      call expect_test('end')
      return
    end if
    call open_session()
    call session%observe(name_of(''), observer, stat)
    call want(CROSSDOCK_NOT_FOUND, stat, 'observe without waiting')
    began = peer_now_ms()
    call session%observe(name_of(''), observer, stat, timeout_ms=200)
    call want(CROSSDOCK_TIMED_OUT, stat, 'observe')
    call check(peer_now_ms() - began >= 200 .and. peer_now_ms() - began < 2000, 'after 200 ms')
    call says(name_of(''))
    b = start('B')
    call observe(observer)
    call tell(b, 'end')
    call ends_well(b)
  end subroutine

  subroutine s6()
    type(crossdock_publisher) :: field
    real(real64), pointer :: u(:, :)
    integer(c_int) :: b
    integer :: stat
    if (.not. first()) then
      call publish_u(field, u)
      call tell_test('up')
      call expect_test('end')
      return
    end if
    b = start('B')
    call expect(b, 'up')
    call open_session()
    call field%variable('u', 'f64', [5, 4])
    call session%publisher(name_of(''), field, stat)
    call want(CROSSDOCK_EXISTS, stat, 'a second publisher')
    call says(name_of(''))
    call says('peer')
    call tell(b, 'end')
    call ends_well(b)
  end subroutine

  !> Process B publishes three versions. It ends, or is killed, after process A has begun to observe the series.
  subroutine after_three(killed, observer)
    logical, intent(in) :: killed
    type(crossdock_observer), intent(inout) :: observer
    type(crossdock_publisher) :: field
    type(crossdock_version) :: version
    real(real64), pointer :: u(:, :)
    integer(int64) :: began
    integer(c_int) :: b
    integer :: stat, k
    if (.not. first()) then
      call publish_u(field, u)
      do k = 1, 3
        u = k
        call publish(field)
      end do
      call tell_test('three')
      call expect_test('go')
      if (killed) call peer_die()
      call field%end(stat)
      call ok(stat, 'end')
      return
    end if
    b = start('B')
    call expect(b, 'three')
    call observe(observer)
    call tell(b, 'go')
    call check(peer_end(b) == merge(137, 0, killed), 'the publisher goes')
    call observer%next(version, stat, timeout_ms=WAIT)
    call ok(stat, 'next')
    call shows(version, 3, 3._real64)
    began = peer_now_ms()
    call observer%next(version, stat, timeout_ms=WAIT)
    call want(merge(CROSSDOCK_PEER_DIED, CROSSDOCK_CLOSED, killed), stat, 'next after the last')
    call check(peer_now_ms() - began < 2000, 'soon')
  end subroutine

  subroutine s7()
    type(crossdock_observer) :: observer, late
    type(crossdock_version) :: version
    integer :: stat, state
    call after_three(.false., observer)
    if (.not. first()) return
    call observer%state(state, stat)
    call check(stat == CROSSDOCK_OK .and. state == CROSSDOCK_SERIES_ENDED, 'ended')
    call observe(late)
    call late%next(version, stat, timeout_ms=0)
    call ok(stat, 'next')
    call shows(version, 3, 3._real64)
    call late%next(version, stat, timeout_ms=WAIT)
    call want(CROSSDOCK_CLOSED, stat, 'next after the last')
    call another_name()
  end subroutine

  !> Opens a publisher that is open already under another name, which ends its first series.
  subroutine another_name()
    type(crossdock_publisher) :: field
    type(crossdock_observer) :: observer
    type(crossdock_version) :: version
    integer :: stat
    call field%variable('u', 'f64', [5, 4])
    call session%publisher(name_of('b'), field, stat)
    call ok(stat, 'publisher')
    call session%observe(name_of('b'), observer, stat, timeout_ms=WAIT)
    call ok(stat, 'observe')
    call session%publisher(name_of('c'), field, stat)
    call ok(stat, 'the publisher of another series')
    call observer%next(version, stat, timeout_ms=WAIT)
    call want(CROSSDOCK_CLOSED, stat, 'next of the first series')
    call publish(field, 1)
  end subroutine

  subroutine s8()
    type(crossdock_observer) :: observer, fresh
    type(crossdock_publisher) :: field
    real(real64), pointer :: u(:, :)
    integer(int64) :: before, after
    integer :: stat, state
    call after_three(.true., observer)
    if (.not. first()) return
    call says('peer')
    call observer%state(state, stat)
    call check(stat == CROSSDOCK_OK .and. state == CROSSDOCK_SERIES_DIED, 'died')
    call latest_shows(observer, 3, 3._real64)
    call publish_u(field, u)
    u = 9
    call publish(field)
    call observe(fresh)
    call observer%id(before, stat)
    call fresh%id(after, stat)
    call check(before /= after, 'another series')
    call latest_shows(fresh, 1, 9._real64)
    call latest_shows(observer, 3, 3._real64)
  end subroutine

  subroutine s9()
    type(crossdock_publisher) :: field
    type(crossdock_observer) :: observer
    type(crossdock_version) :: version
    real(real64), pointer :: u(:, :), next(:, :)
    integer :: stat, step
    call publish_u(field, u)
    call observe(observer)
    u = 1
    call field%set('large', 2_int64**31)
    call field%set('small', -2_int64**31 - 1)
    call field%set('smallest', -huge(1_int64) - 1)
    call publish(field)
    call observer%latest(version, stat)
    call ok(stat, 'latest')
    call version%attribute('large', step, stat)
    call want(CROSSDOCK_INVALID, stat, 'an integer of 64 bits as a default integer')
    call version%attribute('small', step, stat)
    call want(CROSSDOCK_INVALID, stat, 'a negative integer of 64 bits as a default integer')
    call version%attribute('smallest', step, stat)
    call want(CROSSDOCK_INVALID, stat, 'the smallest integer of 64 bits as a default integer')
    call version%free()
    call field%begin(stat)
    call ok(stat, 'begin')
    call field%view('u', next, stat)
    next = 2
    call publish(field, 2)
    call latest_shows(observer, 2, 2._real64)
    call field%begin(stat)
    call ok(stat, 'begin')
    call field%begin(stat)
    call want(CROSSDOCK_BUSY, stat, 'begin twice')
    call field%view('u', next, stat)
    next = 3
    call field%abandon(stat)
    call ok(stat, 'abandon')
    call latest_shows(observer, 2, 2._real64)
    call field%view('u', u, stat)
    call check(all(u == 2), 'in place as before')
  end subroutine

  subroutine s10()
    interface
      function c_resize(publisher, variable, shape, dimensions) bind(c, name="crossdock_publisher_resize") result(stat)
        import :: c_int, c_ptr, c_char, c_int64_t, c_int32_t
        type(c_ptr), value :: publisher
        character(kind=c_char), intent(in) :: variable(*)
        integer(c_int64_t), intent(in) :: shape(*)
        integer(c_int32_t), value :: dimensions
        integer(c_int) :: stat
      end function
    end interface
    type(crossdock_publisher) :: field
    type(crossdock_observer) :: observer
    type(crossdock_version) :: one, two
    real(real64), pointer :: u(:)
    integer(int64), allocatable :: shape(:)
    integer :: stat
    call open_session()
    call field%variable('u', 'f64', [10], [1000])
    call session%publisher(name_of(''), field, stat)
    call ok(stat, 'publisher')
    call observe(observer)
    call publish(field)
    call observer%latest(one, stat)
    call ok(stat, 'latest')
    call field%resize('u', [20], stat)
    call ok(stat, 'resize')
    call field%view('u', u, stat)
    call check(size(u) == 20 .and. all(u(11:) == 0), 'new elements')
    u(20) = 5
    call publish(field)
    call observer%latest(two, stat)
    call one%shape('u', shape, stat)
    call check(all(shape == [10]), 'the first one')
    call two%shape('u', shape, stat)
    call check(all(shape == [20]), 'the second one')
    call two%view('u', u, stat)
    call check(u(20) == 5, 'what was written')
    call field%resize('u', [1001], stat)
    call want(CROSSDOCK_INVALID, stat, 'beyond its largest')
    ! A restart gives a variable another shape inside the library.
    stat = c_resize(field%reference, 'u' // c_null_char, [30_int64], 1)
    call ok(stat, 'resize by the library')
    call field%view('u', u, stat)
    call ok(stat, 'view')
    call check(size(u) == 30, 'the shape that the library gave')
  end subroutine

  subroutine s11()
    integer, parameter :: N = 65536
    type(crossdock_publisher) :: field
    type(crossdock_observer) :: observer
    type(crossdock_version) :: held(12), last
    real(real64), pointer :: u(:), seen(:)
    integer :: stat, i, count
    call open_session()
    call field%variable('u', 'f64', [N])
    call session%publisher(name_of(''), field, stat, capacity=5_int64 * N * 8 / 2, &
                           full=CROSSDOCK_FULL_FAIL)
    call ok(stat, 'publisher')
    call field%view('u', u, stat)
    call observe(observer)
    do count = 1, 12
      u = count
      call field%publish(stat)
      if (stat /= CROSSDOCK_OK) exit
      call observer%latest(held(count), stat)
      call ok(stat, 'latest')
    end do
    call want(CROSSDOCK_NO_SPACE, stat, 'publish')
    call says(name_of(''))
    do i = 1, count - 1
      call held(i)%view('u', seen, stat)
      call check(all(seen == i), 'what is held')
      call held(i)%free()
    end do
    call publish(field)
    call observer%latest(last, stat)
    call last%view('u', seen, stat)
    call check(all(seen == count), 'what is in place')
  end subroutine

  subroutine s15()
    integer, parameter :: N = 65536
    type(crossdock_publisher) :: field, second
    type(crossdock_observer) :: observer, late
    type(crossdock_version) :: held(12), last
    type(crossdock_publisher_statistics) :: statistics
    real(real64), pointer :: u(:), seen(:)
    integer(int64) :: sequence
    integer :: stat, i, count, withheld
    call open_session()
    call field%variable('u', 'f64', [N])
    call session%publisher(name_of(''), field, stat, capacity=5_int64 * N * 8 / 2)
    call ok(stat, 'publisher')
    call field%view('u', u, stat)
    call observe(observer)
    count = 0
    withheld = 0
    do i = 1, 12
      u = i
      call field%publish(stat, sequence)
      call ok(stat, 'publish')
      if (sequence == 0) then
        withheld = withheld + 1
      else
        count = count + 1
        call observer%latest(held(count), stat)
        call ok(stat, 'latest')
      end if
    end do
    call field%statistics(statistics, stat)
    call check(withheld >= 9 .and. statistics%withheld == withheld .and. statistics%no_space == 0, 'withheld')
    do i = 1, count
      call held(i)%view('u', seen, stat)
      call check(all(seen == i), 'what is held')
      call held(i)%free()
    end do
    call publish(field, count + 1)
    call observer%latest(last, stat)
    call last%view('u', seen, stat)
    call check(all(seen == 12), 'what is in place')
    call last%free()
    call field%end(stat)
    call second%variable('u', 'f64', [N])
    call session%publisher(name_of(''), second, stat, keep=9)
    call ok(stat, 'publisher that keeps')
    call second%view('u', u, stat)
    do i = 1, 12
      u = i
      call publish(second, i)
    end do
    call observe(late)
    call late%at(3_int64, last, stat)
    call ok(stat, 'at')
    call last%view('u', seen, stat)
    call check(all(seen == 3), 'what is kept')
  end subroutine

  subroutine s16()
    integer, parameter :: N = 65536
    type(crossdock_publisher) :: field
    type(crossdock_observer) :: observer
    type(crossdock_version) :: one, two
    real(real64), pointer :: u(:), seen(:), unread(:)
    integer :: stat, i
    call open_session()
    call field%variable('u', 'f64', [N])
    call session%publisher(name_of(''), field, stat, capacity=5_int64 * N * 8 / 2, full=CROSSDOCK_FULL_TAKE_BACK)
    call ok(stat, 'publisher')
    call field%view('u', u, stat)
    call observe(observer)
    u = 1
    call publish(field, 1)
    call observer%latest(one, stat)
    call one%view('u', seen, stat)
    call ok(stat, 'view')
    u = 2
    call publish(field, 2)
    call observer%latest(two, stat)
    do i = 3, 14
      u = i
      call publish(field, i)
    end do
    call check(all(seen == 1), 'what was read')
    call two%view('u', unread, stat)
    call want(CROSSDOCK_NOT_FOUND, stat, 'view of what was taken back')
    call says('take_back')
  end subroutine

  subroutine s17()
    integer, parameter :: given(6) = [1, 2, 3, 6, 7, 8], gone(6) = [0, 0, 0, 2, 0, 0]
    type(crossdock_publisher) :: field
    type(crossdock_observer) :: observer
    type(crossdock_version) :: version
    integer(int64) :: sequence, missed
    integer :: stat, i, k
    call open_session()
    call field%variable('u', 'f64', [5, 4])
    call session%publisher(name_of(''), field, stat, keep=2)
    call ok(stat, 'publisher')
    call observe(observer)
    do i = 1, 6
      if (i == 1 .or. i == 4) then
        call observer%each(version, stat, timeout_ms=0)
        call want(CROSSDOCK_NOT_YET, stat, 'each')
        do k = 1, merge(3, 5, i == 1)
          call publish(field)
        end do
      end if
      call observer%each(version, stat, timeout_ms=WAIT)
      call ok(stat, 'each')
      call version%sequence(sequence, stat)
      call version%missed(missed, stat)
      call check(sequence == given(i) .and. missed == gone(i), 'version and missed')
    end do
    call observer%at(9_int64, version, stat, timeout_ms=200)
    call want(CROSSDOCK_TIMED_OUT, stat, 'at')
  end subroutine

  subroutine s18()
    type(crossdock_observer) :: observer
    type(crossdock_publisher), save :: field
    type(crossdock_version) :: version
    real(real64), pointer :: u(:, :)
    integer(c_int) :: b
    integer :: stat, k
    if (.not. first()) then
      call publish_u(field, u)
      do k = 1, 3
        call publish(field)
      end do
      call tell_test('three')
      call expect_test('go')
      return
    end if
    b = start('B')
    call expect(b, 'three')
    call observe(observer)
    call tell(b, 'go')
    call check(peer_end(b) == 0, 'the publisher ends well')
    call observer%next(version, stat, timeout_ms=WAIT)
    call ok(stat, 'next')
    call observer%next(version, stat, timeout_ms=WAIT)
    call want(CROSSDOCK_CLOSED, stat, 'next after the last')
  end subroutine

  subroutine s19()
    integer, parameter :: N = 65536, MORE = 40
    type(crossdock_observer) :: observer, another
    type(crossdock_publisher) :: field
    type(crossdock_version) :: held, newest
    type(crossdock_publisher_statistics) :: statistics
    real(real64), pointer :: u(:), seen(:)
    integer(c_int) :: b
    integer(int64) :: sequence
    integer :: stat, k
    call open_session()
    if (.not. first()) then
      call observe(observer)
      call observer%latest(held, stat)
      call ok(stat, 'latest')
      call tell_test('held')
      call expect_test('go')
      ! If the suite runs across nodes, a new observer waits here until the newest version has arrived on its node.
      call observe(another)
      call another%latest(newest, stat)
      call ok(stat, 'latest')
      call newest%view('u', seen, stat)
      call check(all(seen == MORE + 1), 'the newest of another observer')
      call held%view('u', seen, stat)
      call check(all(seen == 1), 'what is held')
      call observer%next(newest, stat, timeout_ms=WAIT)
      call ok(stat, 'next')
      call newest%view('u', seen, stat)
      call check(all(seen == MORE + 1), 'the newest')
      return
    end if
    call field%variable('u', 'f64', [N])
    call session%publisher(name_of(''), field, stat)
    call ok(stat, 'publisher')
    call field%view('u', u, stat)
    u = 1
    call publish(field)
    b = start('B')
    call expect(b, 'held')
    do k = 2, MORE + 1
      u = k
      call field%publish(stat, sequence)
      call check(stat == CROSSDOCK_OK .and. sequence == k, 'published')
    end do
    call field%statistics(statistics, stat)
    call check(statistics%withheld == 0, 'none is withheld')
    call tell(b, 'go')
    call check(peer_end(b) == 0, 'the observer ends well')
  end subroutine

  subroutine s12()
    type(crossdock_publisher) :: field
    type(crossdock_observer) :: observer
    type(crossdock_version) :: one, two
    type(crossdock_change), allocatable :: changes(:)
    real(real64), pointer :: u(:)
    integer :: stat
    call open_session()
    call field%variable('u', 'f64', [262144])
    call session%publisher(name_of(''), field, stat, chunk=4096)
    call ok(stat, 'publisher')
    call field%view('u', u, stat)
    call observe(observer)
    call publish(field)
    call observer%latest(one, stat)
    u(101) = 1
    call field%touched('u', 800_int64, 8_int64, stat)
    call ok(stat, 'touched')
    call publish(field)
    call observer%latest(two, stat)
    call one%diff(two, changes, stat)
    call ok(stat, 'diff')
    call check(all(changes%variable == 0) .and. sum(changes%bytes) <= 8192, 'little')
    call check(any(changes%from <= 800 .and. 800 < changes%from + changes%bytes), 'what changed')
    call two%diff(two, changes, stat)
    call check(stat == CROSSDOCK_OK .and. size(changes) == 0, 'nothing')
  end subroutine

  subroutine s13()
    type(crossdock_publisher) :: field, none, bad
    real(real64), pointer :: u(:, :)
    integer :: stat
    call publish_u(field, u)
    call field%view('velocity', u, stat)
    call want(CROSSDOCK_NOT_FOUND, stat, 'an unknown variable')
    call says('velocity')
    call field%set('step', 1)
    call publish(field)
    call field%set('step', 'one')
    call field%publish(stat)
    call want(CROSSDOCK_WRONG_TYPE, stat, 'a number as a text')
    call says('step')
    call field%set('step', 1)
    call field%set('note', repeat('x', 64))
    call field%publish(stat)
    call want(CROSSDOCK_INVALID, stat, 'a long text')
    call session%publisher(name_of('b'), none, stat)
    call want(CROSSDOCK_INVALID, stat, 'no variables')
    call bad%variable('u', 'f65', [4])
    call session%publisher(name_of('b'), bad, stat)
    call want(CROSSDOCK_INVALID, stat, 'a type that is none')
    call says('f65')
    call open_often()
  end subroutine

  !> Opens a publisher in the shared session after more calls of crossdock_open than a session can have references.
  subroutine open_often()
    integer, parameter :: CALLS = 16400
    type(crossdock_publisher) :: none, field
    integer :: stat, i
    do i = 1, CALLS
      call crossdock_open(none, name_of('c'), stat)
      call want(CROSSDOCK_INVALID, stat, 'no variables')
    end do
    call field%variable('u', 'f64', [5, 4])
    call crossdock_open(field, name_of('c'), stat)
    call ok(stat, 'crossdock_open')
  end subroutine

  subroutine s14()
    type(crossdock_session) :: other
    type(crossdock_publisher) :: field
    type(crossdock_observer) :: observer
    type(crossdock_version) :: version
    real(real64), pointer :: u(:, :)
    integer :: stat
    call other%connect(stat)
    call ok(stat, 'connect')
    call field%variable('u', 'f64', [5, 4])
    call other%publisher(name_of(''), field, stat)
    call ok(stat, 'publisher')
    call field%view('u', u, stat)
    call ok(stat, 'view')
    u = 1
    call publish(field, 1)
    call observe(observer)
    call latest_shows(observer, 1, 1._real64)
    call other%free()
    u = 2
    call publish(field, 2)
    call latest_shows(observer, 2, 2._real64)
    call field%end(stat)
    call ok(stat, 'end')
    call observer%next(version, stat, timeout_ms=WAIT)
    call want(CROSSDOCK_CLOSED, stat, 'next after the end')
  end subroutine
end module
