! Tests rows P1 to P17 of the table in ../conformance.md: ports.
module ports
  use suite
  use regions, only: open_object
  implicit none
contains

  integer function sender()
    sender = merge(CROSSDOCK_PRODUCER, CROSSDOCK_CONSUMER, first())
  end function

  integer function receiver()
    receiver = merge(CROSSDOCK_CONSUMER, CROSSDOCK_PRODUCER, first())
  end function

  subroutine p1()
    type(crossdock_port) :: port
    type(crossdock_message) :: message
    integer(c_int) :: b
    integer :: stat, i
    call open_port(port, sender(), CROSSDOCK_ONE_TO_ONE, 4)
    if (first()) then
      b = start('B')
      do i = 0, 999
        call send_tag(port, i)
      end do
      call port%close(stat)
      call ok(stat, 'close')
      call ends_well(b)
    else
      do i = 0, 999
        call check(take(port) == i, 'in order')
      end do
      call port%receive(message, stat, timeout_ms=WAIT)
      call want(CROSSDOCK_CLOSED, stat, 'the end')
    end if
  end subroutine

  subroutine p2()
    type(crossdock_port) :: port
    type(crossdock_message) :: message
    character(24) :: bytes
    integer(int64), parameter :: tag = ibset(1_int64, 63)
    integer(c_int) :: b
    integer :: stat, i
    bytes = transfer([(int(i, c_int8_t), i = 0, 23)], bytes)
    call open_port(port, sender(), CROSSDOCK_ONE_TO_ONE, 8)
    if (first()) then
      b = start('B')
      message%tag = tag
      call crossdock_message_put(message, bytes, stat)
      call ok(stat, 'put')
      call port%send(message, stat, timeout_ms=WAIT)
      call ok(stat, 'send')
      call send_tag(port, 0)
      call crossdock_message_put(message, bytes // 'x', stat)
      call want(CROSSDOCK_INVALID, stat, '25 bytes')
      message%inline_length = 25
      call port%send(message, stat, timeout_ms=WAIT)
      call want(CROSSDOCK_INVALID, stat, 'send of 25 bytes')
      call ends_well(b)
    else
      call port%receive(message, stat, timeout_ms=WAIT)
      call ok(stat, 'receive')
      call check(message%tag == tag .and. crossdock_message_bytes(message) == bytes, 'tag and bytes')
      call port%release(message, stat)
      call ok(stat, 'release')
      call port%receive(message, stat, timeout_ms=WAIT)
      call ok(stat, 'receive')
      call check(message%tag == 0 .and. message%inline_length == 0, 'nothing')
      call port%release(message, stat)
      call ok(stat, 'release')
    end if
  end subroutine

  subroutine p3()
    type(crossdock_port) :: port
    type(crossdock_message) :: message
    type(crossdock_object) :: v
    type(crossdock_handle) :: credit
    type(crossdock_port_statistics) :: statistics
    real(real64), pointer :: x(:)
    integer(c_int) :: b
    integer :: stat, i
    call open_port(port, sender(), CROSSDOCK_ONE_TO_ONE, 1)
    if (first()) then
      call open_object(v, 'v', 'vector<f64>', CROSSDOCK_CREATE_ONLY)
      call v%resize(1000, stat)
      call v%view(x, stat)
      x = [(real(i, real64), i = 1, 1000)]
      message%handle = v%handle
      call port%send(message, stat, bytes=8000_int64, timeout_ms=WAIT)
      call ok(stat, 'send')
      b = start('B')
      call port%reclaim(credit, stat, timeout_ms=WAIT)
      call ok(stat, 'reclaim')
      call check(credit == v%handle, 'the credit')
      call port%statistics(statistics, stat)
      call check(statistics%messages == 1 .and. statistics%bytes_handed_over == 8000 .and. &
                 statistics%bytes_copied == 0, 'the statistics')
      call tell(b, 'go')
      call ends_well(b)
      call check(nint(x(1)) /= 1, 'x(1) is 1, not -1')
      call check(nint(x(1)) == -1, 'the mark')
    else
      call port%receive(message, stat, timeout_ms=WAIT)
      call ok(stat, 'receive')
      call session%load(message%handle, 'vector<f64>', region, v, stat)
      call ok(stat, 'load')
      call v%view(x, stat)
      call ok(stat, 'view')
      call check(nint(sum(x)) == 500500, 'the sum')
      x(1) = -1
      call port%release(message, stat)
      call ok(stat, 'release')
      call expect_test('go')
    end if
  end subroutine

  subroutine p4()
    type(crossdock_port) :: port
    type(crossdock_message) :: message
    type(crossdock_object) :: objects(3)
    type(crossdock_handle) :: credit
    integer(c_int) :: b
    integer :: stat, i
    call open_port(port, sender(), CROSSDOCK_ONE_TO_ONE, 2)
    if (.not. first()) then
      call port%receive(message, stat, timeout_ms=WAIT)
      call ok(stat, 'receive')
      call tell_test('received')
      call expect_test('release')
      call port%release(message, stat)
      call ok(stat, 'release')
      call tell_test('released')
      call expect_test('end')
      return
    end if
    do i = 1, 3
      call open_object(objects(i), achar(iachar('a') + i), 'f64', CROSSDOCK_CREATE_ONLY)
    end do
    do i = 1, 2
      message%handle = objects(i)%handle
      call port%send(message, stat, timeout_ms=0)
      call ok(stat, 'send')
    end do
    message%handle = objects(3)%handle
    call port%send(message, stat, timeout_ms=0)
    call want(CROSSDOCK_NOT_YET, stat, 'a third')
    b = start('B')
    call expect(b, 'received')
    call port%send(message, stat, timeout_ms=0)
    call want(CROSSDOCK_NOT_YET, stat, 'a third, not released')
    call tell(b, 'release')
    call expect(b, 'released')
    call port%reclaim(credit, stat, timeout_ms=WAIT)
    call ok(stat, 'reclaim')
    call check(credit == objects(1)%handle, 'the first comes back')
    call port%send(message, stat, timeout_ms=0)
    call ok(stat, 'the third')
    call tell(b, 'end')
    call ends_well(b)
  end subroutine

  subroutine p5()
    type(crossdock_port) :: in, out
    type(crossdock_message) :: message
    integer(int64) :: begin, took
    integer(c_int) :: b
    integer :: stat
    call open_session()
    if (.not. first()) then
      call open_port(out, CROSSDOCK_PRODUCER, CROSSDOCK_ONE_TO_ONE, 1)
      call session%port(name_of('b'), CROSSDOCK_CONSUMER, in, stat, capacity=1)
      call ok(stat, 'port b')
      call tell_test('ready')
      call port_receive_and_keep(in)
      call expect_test('end')
      return
    end if
    b = start('B')
    call expect(b, 'ready')
    call open_port(in, CROSSDOCK_CONSUMER, CROSSDOCK_ONE_TO_ONE, 1)
    call session%port(name_of('b'), CROSSDOCK_PRODUCER, out, stat, capacity=1)
    call ok(stat, 'port b')
    begin = peer_now_ms()
    call in%receive(message, stat, timeout_ms=200)
    took = peer_now_ms() - begin
    call want(CROSSDOCK_TIMED_OUT, stat, 'receive')
    call says(name_of(''))
    call says('peer')
    call check(took >= 199 .and. took < 2000, 'receive ends by its deadline')
    call send_tag(out, 1)
    begin = peer_now_ms()
    call out%send(message, stat, timeout_ms=200)
    took = peer_now_ms() - begin
    call want(CROSSDOCK_TIMED_OUT, stat, 'send')
    call says(name_of('b'))
    call says('peer')
    call check(took >= 199 .and. took < 2000, 'send ends by its deadline')
    call tell(b, 'end')
    call ends_well(b)
  end subroutine

  subroutine port_receive_and_keep(port)
    type(crossdock_port), intent(in) :: port
    type(crossdock_message) :: message
    integer :: stat
    call port%receive(message, stat, timeout_ms=WAIT)
    call ok(stat, 'receive')
  end subroutine

  subroutine p6()
    type(crossdock_port) :: port
    integer(c_int) :: peers(3)
    integer :: i
    call open_port(port, sender(), CROSSDOCK_FAN_OUT, 8)
    if (first()) then
      do i = 1, 3
        peers(i) = start('B')
        call expect(peers(i), 'ready')
      end do
      do i = 0, 99
        call send_tag(port, i)
      end do
      do i = 1, 3
        call ends_well(peers(i))
      end do
    else
      call tell_test('ready')
      do i = 0, 99
        call check(take(port) == i, 'in order')
      end do
    end if
  end subroutine

  subroutine p7()
    type(crossdock_port) :: port
    type(crossdock_message) :: message
    integer(c_int) :: peers(0:2)
    integer :: next(0:2), i, tag, stat
    call open_port(port, receiver(), CROSSDOCK_FAN_IN, 8)
    if (.not. first()) then
      read (argument, *) tag
      call tell_test('ready')
      call expect_test('go')
      do i = 0, 99
        call send_tag(port, 1000 * tag + i)
      end do
      call port%close(stat)
      call ok(stat, 'close')
      return
    end if
    do i = 0, 2
      peers(i) = start('B', achar(iachar('0') + i))
      call expect(peers(i), 'ready')
    end do
    do i = 0, 2
      call tell(peers(i), 'go')
    end do
    next = 0
    do i = 1, 300
      tag = take(port)
      call check(tag / 1000 <= 2, 'a producer there is')
      call check(mod(tag, 1000) == next(tag / 1000), 'in order')
      next(tag / 1000) = next(tag / 1000) + 1
    end do
    do i = 0, 2
      call ends_well(peers(i))
    end do
    call port%receive(message, stat, timeout_ms=WAIT)
    call want(CROSSDOCK_CLOSED, stat, 'the end')
  end subroutine

  subroutine p8()
    type(crossdock_port) :: port, came
    type(crossdock_message) :: message
    integer(c_int) :: peers(5)
    integer :: count(0:299), i, tag, stat
    select case (role)
    case ('producer')
      read (argument, *) tag
      call open_port(port, CROSSDOCK_PRODUCER, CROSSDOCK_WORK_QUEUE, 8)
      call tell_test('ready')
      call expect_test('go')
      do i = 0, 149
        call send_tag(port, 150 * tag + i)
      end do
      call port%close(stat)
      call ok(stat, 'close')
    case ('consumer')
      ! Each consumer reports the messages that it has received to the first process of the test.
      call open_port(port, CROSSDOCK_CONSUMER, CROSSDOCK_WORK_QUEUE, 8)
      call session%port(name_of('b'), CROSSDOCK_PRODUCER, came, stat, pattern=CROSSDOCK_FAN_IN, capacity=8)
      call ok(stat, 'port')
      call tell_test('ready')
      call expect_test('go')
      do
        call port%receive(message, stat, timeout_ms=WAIT)
        if (stat /= CROSSDOCK_OK) exit
        call send_tag(came, int(message%tag))
        call port%release(message, stat)
        call ok(stat, 'release')
      end do
      call want(CROSSDOCK_CLOSED, stat, 'the end')
      call came%close(stat)
      call ok(stat, 'close')
    case default
      ! This producer's end stays open until all messages have arrived. Otherwise a consumer could get CLOSED before all
      ! producers have opened the port.
      call open_port(port, CROSSDOCK_PRODUCER, CROSSDOCK_WORK_QUEUE, 8)
      call session%port(name_of('b'), CROSSDOCK_CONSUMER, came, stat, pattern=CROSSDOCK_FAN_IN, capacity=8)
      call ok(stat, 'port')
      do i = 1, 5
        if (i <= 2) then
          peers(i) = start('producer', achar(iachar('0') + i - 1))
        else
          peers(i) = start('consumer', achar(iachar('0') + i))
        end if
        call expect(peers(i), 'ready')
      end do
      do i = 1, 5
        call tell(peers(i), 'go')
      end do
      count = 0
      do i = 1, 300
        tag = take(came)
        call check(tag >= 0 .and. tag < 300, 'a tag there is')
        count(tag) = count(tag) + 1
      end do
      call port%close(stat)
      call ok(stat, 'close')
      call came%receive(message, stat, timeout_ms=WAIT)
      call want(CROSSDOCK_CLOSED, stat, 'the end')
      do i = 1, 5
        call ends_well(peers(i))
      end do
      call check(all(count == 1), 'each exactly once')
    end select
  end subroutine

  subroutine leaves(killed)
    logical, intent(in) :: killed
    type(crossdock_port) :: port
    type(crossdock_message) :: message
    integer(int64) :: begin
    integer :: stat, i
    call open_port(port, receiver(), CROSSDOCK_ONE_TO_ONE, 8)
    if (.not. first()) then
      do i = 0, 2
        call send_tag(port, i)
      end do
      if (killed) call peer_die()
      call port%close(stat)
      call ok(stat, 'close')
      return
    end if
    call check(peer_end(start('B')) == merge(137, 0, killed), 'the producer ends')
    do i = 0, 2
      call check(take(port) == i, 'what was sent before')
    end do
    begin = peer_now_ms()
    call port%receive(message, stat, timeout_ms=WAIT)
    call want(merge(CROSSDOCK_PEER_DIED, CROSSDOCK_CLOSED, killed), stat, 'the end')
    call check(peer_now_ms() - begin < 2000, 'soon')
    if (killed) call says('peer')
  end subroutine

  subroutine p17()
    type(crossdock_port) :: port
    type(crossdock_message) :: message
    integer :: stat, i, run
    do run = 1, 2
      call open_port(port, receiver(), CROSSDOCK_ONE_TO_ONE, 8)
      if (.not. first()) then
        do i = 0, 2
          call send_tag(port, i)
        end do
        call port%close(stat)
        call ok(stat, 'close')
        return
      end if
      if (run == 2) then
        call port%receive(message, stat, timeout_ms=200)
        call want(CROSSDOCK_TIMED_OUT, stat, 'the producer of before is history')
        call says('no producer')
      end if
      call check(peer_end(start('B')) == 0, 'the producer ends')
      do i = 0, 2
        call check(take(port) == i, 'what was sent')
      end do
      call port%receive(message, stat, timeout_ms=WAIT)
      call want(CROSSDOCK_CLOSED, stat, 'the end')
      call port%close(stat)
      call ok(stat, 'close')
    end do
  end subroutine

  subroutine p11()
    type(crossdock_port) :: port
    type(crossdock_message) :: message
    integer :: stat, i
    select case (role)
    case ('B')
      call open_port(port, CROSSDOCK_CONSUMER, CROSSDOCK_ONE_TO_ONE, 8)
      call port%receive(message, stat, timeout_ms=WAIT)
      call ok(stat, 'receive')
      call check(message%tag == 0, 'the first')
      call peer_die()
    case ('C')
      call open_session()
      call session%port(name_of(''), CROSSDOCK_CONSUMER, port, stat, timeout_ms=WAIT)
      call ok(stat, 'the end of the dead')
      do i = 0, 2
        call check(take(port) == i, 'all three')
      end do
    case default
      call open_port(port, CROSSDOCK_PRODUCER, CROSSDOCK_ONE_TO_ONE, 8)
      do i = 0, 2
        call send_tag(port, i)
      end do
      call check(peer_end(start('B')) == 137, 'the consumer is killed')
      call ends_well(start('C'))
    end select
  end subroutine

  subroutine p12()
    type(crossdock_port) :: port
    type(crossdock_region) :: none
    type(crossdock_message) :: message
    character(:), allocatable :: before
    integer(int64) :: begin
    integer :: stat
    call open_port(port, CROSSDOCK_CONSUMER, CROSSDOCK_ONE_TO_ONE, 8)
    call session%region(name_of('b'), none, stat, mode=CROSSDOCK_OPEN_ONLY)
    call want(CROSSDOCK_NOT_FOUND, stat, 'nothing')
    before = crossdock_error_message()
    begin = peer_now_ms()
    call port%receive(message, stat, timeout_ms=0)
    call want(CROSSDOCK_NOT_YET, stat, 'receive')
    call check(peer_now_ms() - begin < 100, 'at once')
    call check(crossdock_error_message() == before, 'no failure')
  end subroutine

  subroutine p13()
    type, bind(c) :: pollfd
      integer(c_int) :: fd = -1
      integer(c_short) :: events = 1, revents = 0
    end type
    interface
      function poll(descriptors, count, timeout_ms) bind(c) result(ready)
        import :: pollfd, c_long, c_int
        type(pollfd), intent(inout) :: descriptors(*)
        integer(c_long), value :: count
        integer(c_int), value :: timeout_ms
        integer(c_int) :: ready
      end function
    end interface
    type(pollfd) :: on(1)
    type(crossdock_port) :: port
    type(crossdock_message) :: message
    integer(c_int) :: b
    integer :: stat
    logical :: ready
    call open_port(port, receiver(), CROSSDOCK_ONE_TO_ONE, 8)
    if (.not. first()) then
      call tell_test('ready')
      call expect_test('go')
      call send_tag(port, 42)
      call expect_test('end')
      return
    end if
    b = start('B')
    call expect(b, 'ready')
    call port%descriptor(on(1)%fd, stat)
    call ok(stat, 'descriptor')
    call port%arm(ready, stat)
    call ok(stat, 'arm')
    call check(.not. ready, 'nothing is there')
    call check(poll(on, 1_c_long, 50_c_int) == 0, 'poll says nothing')
    call tell(b, 'go')
    call check(poll(on, 1_c_long, 2000_c_int) == 1, 'poll says readable')
    call port%disarm(stat)
    call ok(stat, 'disarm')
    call port%receive(message, stat, timeout_ms=0)
    call ok(stat, 'receive')
    call check(message%tag == 42, 'the message')
    call port%release(message, stat)
    call tell(b, 'end')
    call ends_well(b)
  end subroutine

  subroutine p14()
    type(crossdock_port) :: port
    integer(c_int) :: b
    integer :: stat
    call open_session()
    if (.not. first()) then
      call session%port(name_of(''), CROSSDOCK_PRODUCER, port, stat)
      call want(CROSSDOCK_BUSY, stat, 'a second producer')
      call says(name_of(''))
      call tell_test('busy')
      call expect_test('closed')
      call session%port(name_of(''), CROSSDOCK_PRODUCER, port, stat)
      call ok(stat, 'the next producer')
      return
    end if
    call open_port(port, CROSSDOCK_PRODUCER, CROSSDOCK_ONE_TO_ONE, 8)
    b = start('B')
    call expect(b, 'busy')
    call port%close(stat)
    call ok(stat, 'close')
    call tell(b, 'closed')
    call ends_well(b)
  end subroutine

  subroutine p15()
    type(crossdock_port) :: port, other
    type(crossdock_message) :: fifth
    integer :: stat, i
    call open_port(port, CROSSDOCK_PRODUCER, CROSSDOCK_ONE_TO_ONE, 4)
    call session%port(name_of(''), CROSSDOCK_CONSUMER, other, stat, capacity=8)
    call want(CROSSDOCK_INVALID, stat, 'another capacity')
    call says(name_of(''))
    call session%port(name_of(''), CROSSDOCK_CONSUMER, other, stat, pattern=CROSSDOCK_FAN_OUT, capacity=4)
    call want(CROSSDOCK_INVALID, stat, 'another pattern')
    call says(name_of(''))
    call session%port(name_of(''), CROSSDOCK_CONSUMER, other, stat)
    call want(CROSSDOCK_OK, stat, 'nothing said')
    do i = 0, 3
      call send_tag(port, i)
    end do
    call port%send(fifth, stat, timeout_ms=0)
    call want(CROSSDOCK_NOT_YET, stat, 'a fifth message')
    do i = 0, 3
      call check(take(other) == i, 'as it was made')
    end do
  end subroutine

  !> In the other languages this test uses two threads. Fortran has no threads, so one thread has both ends of the port.
  subroutine p16()
    type(crossdock_port) :: in, out
    integer :: i
    call open_port(out, CROSSDOCK_PRODUCER, CROSSDOCK_ONE_TO_ONE, 4)
    call open_port(in, CROSSDOCK_CONSUMER, CROSSDOCK_ONE_TO_ONE, 4)
    do i = 0, 1002
      if (i < 1000) call send_tag(out, i)
      if (i > 2) call check(take(in) == i - 3, 'in order')
    end do
  end subroutine
end module
