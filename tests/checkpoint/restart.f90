! Restarts from the newest undamaged checkpoint of a folder and prints what it finds.
program restart
  use crossdock_checkpoints
  use, intrinsic :: iso_fortran_env, only: int64, real64
  implicit none
  type(crossdock_checkpoint) :: saved
  character(:), allocatable :: series, note
  character(4096) :: folder
  integer(int64) :: sequence
  integer :: step, stat
  real(real64) :: time, v(3, 2), wrong(5)
  call get_command_argument(1, folder)
  series = crossdock_ranked('field')
  call saved%restart(trim(folder), stat)
  if (stat /= CROSSDOCK_OK) error stop 1
  call saved%sequence(sequence, stat, series=series)
  if (stat /= CROSSDOCK_OK) error stop 2
  call saved%integer('step', step, stat, series=series)
  if (stat /= CROSSDOCK_OK) error stop 3
  call saved%real('time', time, stat)
  if (stat /= CROSSDOCK_OK) error stop 4
  call saved%text('note', note, stat)
  if (stat /= CROSSDOCK_OK) error stop 5
  call saved%read('v10', v, stat, series=series)
  if (stat /= CROSSDOCK_OK) error stop 6
  call saved%read('v10', wrong, stat)
  if (stat /= CROSSDOCK_WRONG_TYPE) error stop 7
  if (index(saved%skipped(), 'damaged') == 0) error stop 8
  print '(a, 1x, i0, 1x, i0, 1x, f5.3, 1x, a, 1x, i0, 1x, a)', series, sequence, step, time, note, 1, scientific(sum(v))
  call saved%free
  call saved%restart('/nowhere', stat)
  if (stat /= CROSSDOCK_NOT_FOUND) error stop 9
contains
  ! Writes the number in the form that C uses.
  function scientific(x) result(text)
    real(real64), intent(in) :: x
    character(:), allocatable :: text
    character(32) :: buffer
    write (buffer, '(es16.9e2)') x
    text = trim(adjustl(buffer))
    text = text(1:index(text, 'E') - 1) // 'e' // text(index(text, 'E') + 1:)
  end function
end program
