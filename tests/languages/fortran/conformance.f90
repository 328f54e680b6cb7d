! The rows of ../conformance.md in Fortran. Prints one line for each row, and then the count.
program conformance
  use suite
  use regions
  use ports
  use items
  use series
  use files
  implicit none

  character(len=40), parameter :: rows(82) = [character(len=40) :: &
    'R1 modes', 'R2 simple', 'R3 struct and array', 'R4 vector', 'R5 string', 'R6 ndarray', 'R7 wrong type', &
    'R8 not found, with and without deadline', 'R9 create only', 'R10 save and load', 'R11 bad handles', &
    'R12 remove and reuse', 'R13 region full', 'R14 removed region', 'R15 size', 'R16 move', &
    'R17 ndarray of fixed arrays', 'E1 bad names', 'E2 bad sizes and types', &
    'E3 no daemon', 'E4 progress', 'P1 one to one, order', 'P2 tag and inline bytes', 'P3 handle', 'P4 credits', &
    'P5 deadline names the peer', 'P6 fan-out', 'P7 fan-in', 'P8 work queue', 'P9 producer leaves', &
    'P10 producer killed', 'P11 consumer killed', 'P12 not yet', 'P13 descriptor', 'P14 second producer', &
    'P15 options must agree', 'P16 threads', 'P17 earlier peers are history', &
    'I1 create, find, destroy', 'I2 transfer there and back', &
    'I3 to a task that is not there yet', 'I4 a waiting task gets it', 'I5 deadline names the owner', &
    'I6 a spent item is nothing', 'I7 copy', 'I8 share and unshare', 'I9 resize', 'I10 bad arguments', &
    'I11 access twice', 'I12 destroyed while others wait', 'I13 the first of several', 'I14 a heap in an item', &
    "I15 owner's death", 'I16 numbers', &
    'S1 describe and read', 'S2 a version stays as it was', 'S3 next waits', 'S4 at', 'S5 observing waits', &
    'S6 one publisher', 'S7 publisher ends', 'S8 publisher killed', 'S9 begin and abandon', 'S10 growing variable', &
    'S11 full pool', 'S12 diff', 'S13 misuse', 'S14 a session is not left behind a ser', &
    'S15 a publisher is not stopped by its ob', 'S16 what was taken back is an error, or', &
    'S17 each, and at with a deadline', 'S18 a normal end ends what is open', &
    'S19 a stuck observer costs one version', &
    'F1 a file that comes', 'F2 deadline names the producer', 'F3 dead producer', 'F4 published name written again', &
    'F5 never part of a file', 'F6 directories', 'F7 removal', 'F8 quota', 'F9 retention']
  interface
    function getpid() bind(c) result(pid)
      import :: c_int
      integer(c_int) :: pid
    end function
  end interface
  character(12) :: number
  character(:), allocatable :: only
  integer :: i, passed, failed

  if (command_argument_count() == 5) then
    row_id = given_argument(2)
    role = given_argument(3)
    prefix = given_argument(4)
    argument = given_argument(5)
    call run_row()
    if (first()) call tell_test('ok')
    call finish(0)
  end if
  role = ''
  only = ''
  if (command_argument_count() > 0) only = given_argument(1)
  write (number, '(i0)') getpid()
  prefix = 'fortran-' // trim(number)
  passed = 0
  failed = 0
  do i = 1, size(rows)
    row_id = rows(i)(1:index(rows(i), ' ') - 1)
    if (only /= '' .and. only /= row_id) cycle
    if (passes(trim(rows(i)))) then
      passed = passed + 1
    else
      failed = failed + 1
    end if
  end do
  print '(i0, a, i0, a)', passed, ' passed, ', failed, ' failed'
  call c_exit(merge(1_c_int, 0_c_int, failed > 0))

contains

  function given_argument(n) result(text)
    integer, intent(in) :: n
    character(:), allocatable :: text
    integer :: length
    call get_command_argument(n, length=length)
    allocate (character(length) :: text)
    call get_command_argument(n, text)
  end function

  !> Runs the test of a row in a process of its own. The process prints "ok", or the reason of the failure.
  logical function passes(title)
    character(*), intent(in) :: title
    integer(c_int) :: peer, status
    character(:), allocatable :: why
    peer = c_peer_start(row_id // c_null_char, 'run' // c_null_char, prefix // c_null_char, c_null_char)
    passes = c_peer_expect(peer, 'ok' // c_null_char) == 0
    why = last_line()
    status = peer_end(peer)
    passes = passes .and. status == 0
    if (passes) then
      print '(2a)', 'ok ', title
    else
      print '(4a)', 'FAILED ', title, ': ', why
    end if
  end function

  subroutine run_row()
    select case (row_id)
    case ('R1')
      call r1()
    case ('R2')
      call r2()
    case ('R3')
      call r3()
    case ('R4')
      call r4()
    case ('R5')
      call r5()
    case ('R6')
      call r6()
    case ('R7')
      call r7()
    case ('R8')
      call r8()
    case ('R9')
      call r9()
    case ('R10')
      call r10()
    case ('R11')
      call r11()
    case ('R12')
      call r12()
    case ('R13')
      call r13()
    case ('R14')
      call r14()
    case ('R15')
      call r15()
    case ('R16')
      call r16()
    case ('R17')
      call r17()
    case ('E1')
      call e1()
    case ('E2')
      call e2()
    case ('E3')
      call e3()
    case ('E4')
      call e4()
    case ('F1')
      call f1()
    case ('F2')
      call f2()
    case ('F3')
      call f3()
    case ('F4')
      call f4()
    case ('F5')
      call f5()
    case ('F6')
      call f6()
    case ('F7')
      call f7()
    case ('F8')
      call f8()
    case ('F9')
      call f9()
    case ('P1')
      call p1()
    case ('P2')
      call p2()
    case ('P3')
      call p3()
    case ('P4')
      call p4()
    case ('P5')
      call p5()
    case ('P6')
      call p6()
    case ('P7')
      call p7()
    case ('P8')
      call p8()
    case ('P9')
      call leaves(killed=.false.)
    case ('P10')
      call leaves(killed=.true.)
    case ('P11')
      call p11()
    case ('P12')
      call p12()
    case ('P13')
      call p13()
    case ('P14')
      call p14()
    case ('P15')
      call p15()
    case ('P16')
      call p16()
    case ('P17')
      call p17()
    case ('I1')
      call i1()
    case ('I2')
      call i2()
    case ('I3')
      call i3()
    case ('I4')
      call i4()
    case ('I5')
      call i5()
    case ('I6')
      call i6()
    case ('I7')
      call i7()
    case ('I8')
      call i8()
    case ('I9')
      call i9()
    case ('I10')
      call i10()
    case ('I11')
      call i11()
    case ('I12')
      call i12()
    case ('I13')
      call i13()
    case ('I14')
      call i14()
    case ('I15')
      call i15()
    case ('I16')
      call i16()
    case ('S1')
      call s1()
    case ('S2')
      call s2()
    case ('S3')
      call s3()
    case ('S4')
      call s4()
    case ('S5')
      call s5()
    case ('S6')
      call s6()
    case ('S7')
      call s7()
    case ('S8')
      call s8()
    case ('S9')
      call s9()
    case ('S10')
      call s10()
    case ('S11')
      call s11()
    case ('S12')
      call s12()
    case ('S13')
      call s13()
    case ('S14')
      call s14()
    case ('S15')
      call s15()
    case ('S16')
      call s16()
    case ('S17')
      call s17()
    case ('S18')
      call s18()
    case ('S19')
      call s19()
    case default
      call fail('there is no such row')
    end select
  end subroutine
end program
