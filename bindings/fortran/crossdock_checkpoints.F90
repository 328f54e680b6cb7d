! The module crossdock, and in addition what a restarted program needs: names that contain the rank, and procedures that
! read the checkpoints that `crossdock checkpoint` wrote. The shortest way to restore a publisher's own arrays:
!
!   use crossdock_checkpoints
!   call crossdock_open(field, crossdock_ranked('field'), stat)      ! in the process's shared session
!   call field%view('u', u, stat)
!   call crossdock_restart(field, 'checkpoints', stat, step=first)   ! restores u and first, if there is a checkpoint
!
! For any other arrays, without a daemon:
!
!   use crossdock_checkpoints
!   type(crossdock_checkpoint) :: saved
!   call saved%restart('checkpoints', stat)
!   if (stat == CROSSDOCK_OK) then                        ! CROSSDOCK_NOT_FOUND: there is none, a first start
!     call saved%read('u', u, stat, series=crossdock_ranked('field'))
!     call saved%integer('step', step, stat, series=crossdock_ranked('field'))
!     call saved%free
!   end if
!
! `series` may be left out if the file has only one series. Arrays of real32, real64, int32 and int64 with rank 1 to 4
! can be read.
! SPDX-License-Identifier: Apache-2.0
module crossdock_checkpoints
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
  use crossdock_c
  use crossdock
  use crossdock_series, only: narrow, open_publisher
  use crossdock_checkpoints_c
  implicit none
  ! All names of the module crossdock are public here, too. The helpers of this file are private.
  private :: narrow, open_publisher
  private :: c_restart, c_unref, c_path, c_skipped, c_sequence, c_integer, c_real, c_text, c_read
  private :: c_ranked_name, c_publisher_restart, c_session_default, read_all, given, text_in

  !> A checkpoint that is open for reading. `free` closes it.
  type :: crossdock_checkpoint
    type(c_ptr) :: reference = c_null_ptr
  contains
    procedure :: restart => checkpoint_restart
    procedure :: path => checkpoint_path
    procedure :: skipped => checkpoint_skipped
    procedure :: sequence => checkpoint_sequence
    generic :: integer => integer_32, integer_64
    procedure, private :: integer_32 => checkpoint_integer_32, integer_64 => checkpoint_integer_64
    procedure :: real => checkpoint_real
    procedure :: text => checkpoint_text
    generic :: read => r32_1, r32_2, r32_3, r32_4, r64_1, r64_2, r64_3, r64_4, &
                       i32_1, i32_2, i32_3, i32_4, i64_1, i64_2, i64_3, i64_4
    procedure, private :: r32_1, r32_2, r32_3, r32_4, r64_1, r64_2, r64_3, r64_4
    procedure, private :: i32_1, i32_2, i32_3, i32_4, i64_1, i64_2, i64_3, i64_4
    procedure :: free => checkpoint_free
  end type

contains

  !> Appends a rank to a name: `field` becomes `field/3`. The rank is `rank` (an MPI rank), or else the rank that the
  !> launcher gave this process. The result is '' if the text cannot be a name.
  function crossdock_ranked(name, rank) result(ranked)
    character(*), intent(in) :: name
    integer, intent(in), optional :: rank
    character(:), allocatable :: ranked
    character(kind=c_char) :: buffer(CROSSDOCK_NAME_MAX + 1)
    integer(int64) :: its_rank
    its_rank = -1
    if (present(rank)) its_rank = rank
    buffer = c_null_char
    if (c_ranked_name(name // c_null_char, its_rank, buffer, size(buffer, kind=c_size_t)) /= CROSSDOCK_OK) buffer = c_null_char
    ranked = text_in(buffer)
  end function

  !> Opens a publisher in the one session that all callers in this process share. The first call connects that
  !> session. Otherwise the procedure works as session%publisher.
  subroutine crossdock_open(publisher, name, stat, keep, capacity, chunk, max_observers, full, detect)
    type(crossdock_publisher), intent(inout) :: publisher
    character(*), intent(in) :: name
    integer, intent(out) :: stat
    integer, intent(in), optional :: keep, chunk, max_observers, full, detect
    integer(int64), intent(in), optional :: capacity
    type(c_ptr) :: session
    integer :: ignored
    stat = c_session_default(session)
    if (stat /= CROSSDOCK_OK) return
    call open_publisher(session, name, publisher, stat, keep, capacity, chunk, max_observers, full, detect)
    ! The library itself keeps the shared session for the next call, also while no publisher is open.
    ignored = c_session_unref(session)
  end subroutine

  !> Fills a publisher's arrays from the newest undamaged checkpoint of its series. `folder` may also be the path of
  !> one checkpoint file, which another rank of the program has chosen. `step` and `time` get the attributes of these
  !> names, and `skipped` gets one line for each newer checkpoint that is damaged. If there is no checkpoint, because
  !> the program starts for the first time, nothing changes and the status is OK. CORRUPT: all checkpoints are damaged.
  !> INVALID: the checkpoint is of another number of ranks, or does not fit into the publisher's arrays. WRONG_TYPE: a
  !> stored array has another type than the publisher's. NO_SPACE: the node's memory does not suffice.
  subroutine crossdock_restart(publisher, folder, stat, step, time, skipped)
    type(crossdock_publisher), intent(in) :: publisher
    character(*), intent(in) :: folder
    integer, intent(out) :: stat
    integer, intent(inout), optional :: step
    real(real64), intent(inout), optional :: time
    character(:), allocatable, intent(out), optional :: skipped
    type(crossdock_checkpoint) :: saved
    if (present(skipped)) skipped = ''
    stat = c_publisher_restart(publisher%reference, folder // c_null_char, saved%reference)
    if (stat == CROSSDOCK_NOT_FOUND) stat = CROSSDOCK_OK
    if (stat /= CROSSDOCK_OK .or. .not. c_associated(saved%reference)) return
    if (present(step)) call saved%integer('step', step, stat)
    if (present(time) .and. stat == CROSSDOCK_OK) call saved%real('time', time, stat)
    if (present(skipped)) skipped = saved%skipped()
    call saved%free
  end subroutine

  !> Opens the newest undamaged checkpoint of a folder, or the checkpoint file with this path. NOT_FOUND: there is no
  !> checkpoint. CORRUPT: all checkpoints are damaged.
  subroutine checkpoint_restart(checkpoint, folder, stat, name)
    class(crossdock_checkpoint), intent(inout) :: checkpoint
    character(*), intent(in) :: folder
    integer, intent(out) :: stat
    character(*), intent(in), optional :: name
    character(:), allocatable, target :: its_name
    type(c_ptr) :: reference, named
    named = c_null_ptr
    if (present(name)) then
      its_name = name // c_null_char
      named = c_loc(its_name)
    end if
    stat = c_restart(folder // c_null_char, named, reference)
    if (stat /= CROSSDOCK_OK) return
    call checkpoint%free
    checkpoint%reference = reference
  end subroutine

  function checkpoint_path(checkpoint) result(path)
    class(crossdock_checkpoint), intent(in) :: checkpoint
    character(:), allocatable :: path
    character(kind=c_char) :: buffer(4097)
    buffer = c_null_char
    if (c_path(checkpoint%reference, buffer, size(buffer, kind=c_size_t)) /= CROSSDOCK_OK) buffer = c_null_char
    path = text_in(buffer)
  end function

  !> The newer checkpoints that were skipped because they were damaged, one per line; '' if there were none.
  function checkpoint_skipped(checkpoint) result(lines)
    class(crossdock_checkpoint), intent(in) :: checkpoint
    character(:), allocatable :: lines
    character(kind=c_char) :: buffer(4096)
    integer(c_int32_t) :: count
    buffer = c_null_char
    if (c_skipped(checkpoint%reference, count, buffer, size(buffer, kind=c_size_t)) /= CROSSDOCK_OK) buffer = c_null_char
    lines = text_in(buffer)
  end function

  subroutine checkpoint_sequence(checkpoint, sequence, stat, series)
    class(crossdock_checkpoint), intent(in) :: checkpoint
    integer(int64), intent(out) :: sequence
    integer, intent(out) :: stat
    character(*), intent(in), optional :: series
    character(:), allocatable, target :: text
    stat = c_sequence(checkpoint%reference, given(series, text), sequence)
  end subroutine

  subroutine checkpoint_integer_64(checkpoint, name, value, stat, series)
    class(crossdock_checkpoint), intent(in) :: checkpoint
    character(*), intent(in) :: name
    integer(int64), intent(out) :: value
    integer, intent(out) :: stat
    character(*), intent(in), optional :: series
    character(:), allocatable, target :: text
    stat = c_integer(checkpoint%reference, given(series, text), name // c_null_char, value)
  end subroutine

  subroutine checkpoint_integer_32(checkpoint, name, value, stat, series)
    class(crossdock_checkpoint), intent(in) :: checkpoint
    character(*), intent(in) :: name
    integer(int32), intent(out) :: value
    integer, intent(out) :: stat
    character(*), intent(in), optional :: series
    integer(int64) :: whole
    whole = 0
    call checkpoint_integer_64(checkpoint, name, whole, stat, series)
    call narrow(whole, name, value, stat)
  end subroutine

  subroutine checkpoint_real(checkpoint, name, value, stat, series)
    class(crossdock_checkpoint), intent(in) :: checkpoint
    character(*), intent(in) :: name
    real(real64), intent(out) :: value
    integer, intent(out) :: stat
    character(*), intent(in), optional :: series
    character(:), allocatable, target :: text
    stat = c_real(checkpoint%reference, given(series, text), name // c_null_char, value)
  end subroutine

  !> Gets an attribute of any kind as text.
  subroutine checkpoint_text(checkpoint, name, value, stat, series)
    class(crossdock_checkpoint), intent(in) :: checkpoint
    character(*), intent(in) :: name
    character(:), allocatable, intent(out) :: value
    integer, intent(out) :: stat
    character(*), intent(in), optional :: series
    character(:), allocatable, target :: text
    character(kind=c_char) :: buffer(32769)
    buffer = c_null_char
    stat = c_text(checkpoint%reference, given(series, text), name // c_null_char, buffer, size(buffer, kind=c_size_t))
    if (stat /= CROSSDOCK_OK) buffer = c_null_char
    value = text_in(buffer)
  end subroutine

  !> Reads a variable into an array, which must have exactly the variable's size. WRONG_TYPE: the array has another
  !> size. CORRUPT: do not use the values of the array.
#define N1 r32_1
#define N2 r32_2
#define N3 r32_3
#define N4 r32_4
#define VALUE real(real32)
#include "reads.inc"
#define N1 r64_1
#define N2 r64_2
#define N3 r64_3
#define N4 r64_4
#define VALUE real(real64)
#include "reads.inc"
#define N1 i32_1
#define N2 i32_2
#define N3 i32_3
#define N4 i32_4
#define VALUE integer(int32)
#include "reads.inc"
#define N1 i64_1
#define N2 i64_2
#define N3 i64_3
#define N4 i64_4
#define VALUE integer(int64)
#include "reads.inc"

  subroutine read_all(checkpoint, name, into, bytes, stat, series)
    class(crossdock_checkpoint), intent(in) :: checkpoint
    character(*), intent(in) :: name
    type(c_ptr), intent(in) :: into
    integer(c_size_t), intent(in) :: bytes
    integer, intent(out) :: stat
    character(*), intent(in), optional :: series
    character(:), allocatable, target :: text
    stat = c_read(checkpoint%reference, given(series, text), name // c_null_char, into, bytes)
  end subroutine

  subroutine checkpoint_free(checkpoint)
    class(crossdock_checkpoint), intent(inout) :: checkpoint
    integer :: ignored
    ignored = c_unref(checkpoint%reference)
    checkpoint%reference = c_null_ptr
  end subroutine

  function given(series, text) result(address)
    character(*), intent(in), optional :: series
    character(:), allocatable, target, intent(inout) :: text
    type(c_ptr) :: address
    address = c_null_ptr
    if (.not. present(series)) return
    text = series // c_null_char
    address = c_loc(text)
  end function

  function text_in(buffer) result(text)
    character(kind=c_char), intent(in) :: buffer(:)
    character(:), allocatable :: text
    integer :: length, i
    length = 0
    do while (length < size(buffer))
      if (buffer(length + 1) == c_null_char) exit
      length = length + 1
    end do
    allocate (character(length) :: text)
    do i = 1, length
      text(i:i) = buffer(i)
    end do
  end function
end module
