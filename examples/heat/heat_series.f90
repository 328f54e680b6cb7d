! Heat conduction on a periodic plate: explicit finite differences of second order, one block of the grid for each MPI
! rank, ghost cells exchanged with the four neighbours. Every result is the same bit for bit, whatever the number of
! ranks, because the order of each sum is the same for any number of ranks.
!
!   mpirun -n 4 heat [N] [STEPS] [EVERY] [FOLDER]     an N × N grid; a line every EVERY steps; the end in FOLDER/final.bin
program heat
  use mpi
  use crossdock_checkpoints
  use, intrinsic :: iso_fortran_env, only: real64, int64
  implicit none
  real(real64), parameter :: r = 0.2_real64                ! diffusivity · time step / spacing², below 1/4
  real(real64), pointer, contiguous :: u(:, :)
  type(crossdock_publisher) :: field
  real(real64), allocatable :: next(:, :)
  character(:), allocatable :: folder
  integer :: n, steps, every, step, first, plate, rank, ranks, parts(2), here(2), origin(2), extent(2), error
  real(real64) :: began, hottest, used(2), all_used

  call MPI_Init(error)
  call read_arguments()
  call divide_plate()
  call field%variable('u', 'f64', extent + 2)
  call field%constant('u', 'x', origin(1))
  call field%constant('u', 'y', origin(2))
  call crossdock_open(field, crossdock_ranked('field'), error, keep=2)
  if (error /= CROSSDOCK_OK) error stop crossdock_error_message()
  call field%view('u', u, error)
  u(0:, 0:) => u
  allocate (next, mold=u)
  call heat_up()
  first = 0
  call crossdock_restart(field, folder // '/checkpoints', error, step=first)
  if (error /= CROSSDOCK_OK) error stop crossdock_error_message()
  if (rank == 0) print '(4(a, i0))', &
    'heat: ', n, ' squared points, ', ranks, ' ranks, ', steps, ' steps, goes on behind step ', first

  call MPI_Barrier(plate, error)
  began = MPI_Wtime()
  call cpu_time(used(1))
  do step = first + 1, steps
    call exchange()
    call advance()
    if (mod(step, every) == 0) call report()
  end do
  call MPI_Barrier(plate, error)
  call cpu_time(used(2))
  call MPI_Reduce(used(2) - used(1), all_used, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0, plate, error)
  if (rank == 0) print '(2(a, f0.3), a)', 'heat: the steps took ', MPI_Wtime() - began, ' s and ', all_used, ' s of CPU time'
  call save_plate()
  call field%end(error)
  call MPI_Finalize(error)

contains

  subroutine read_arguments()
    n = whole_argument(1, 512)
    steps = whole_argument(2, 2000)
    every = whole_argument(3, 20)
    folder = argument(4)
    if (folder == '') folder = '.'
  end subroutine

  integer function whole_argument(number, otherwise) result(value)
    integer, intent(in) :: number, otherwise
    character(:), allocatable :: text
    integer :: status
    value = otherwise
    text = argument(number)
    if (text /= '') read (text, *, iostat=status) value
  end function

  function argument(number) result(text)
    integer, intent(in) :: number
    character(:), allocatable :: text
    integer :: length
    call get_command_argument(number, length=length)
    allocate (character(length) :: text)
    if (length > 0) call get_command_argument(number, text)
  end function

  ! Divides the plate into blocks that are as square as the number of ranks allows. If the points do not divide evenly,
  ! the first blocks get the rest.
  subroutine divide_plate()
    integer :: i
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
    parts = 0
    call MPI_Dims_create(ranks, 2, parts, error)
    call MPI_Cart_create(MPI_COMM_WORLD, 2, parts, [.true., .true.], .false., plate, error)
    call MPI_Comm_rank(plate, rank, error)
    call MPI_Cart_coords(plate, rank, 2, here, error)
    do i = 1, 2
      extent(i) = n / parts(i) + merge(1, 0, here(i) < mod(n, parts(i)))
      origin(i) = here(i) * (n / parts(i)) + min(here(i), mod(n, parts(i)))
    end do
  end subroutine

  ! Sets the start: noise on all scales, and a hot disc. The value of a point depends only on its place in the whole
  ! plate.
  subroutine heat_up()
    integer :: i, j
    integer(int64) :: seed
    u = 0
    do j = 1, extent(2)
      do i = 1, extent(1)
        seed = int(origin(2) + j, int64) * n + origin(1) + i
        seed = iand(seed * 2654435761_int64, 4294967295_int64)
        seed = iand(ieor(seed, ishft(seed, -15)) * 2246822519_int64, 4294967295_int64)
        u(i, j) = real(iand(ieor(seed, ishft(seed, -13)), 65535_int64), real64) / 65536
        if (hypot(origin(1) + i - 0.35_real64 * n, origin(2) + j - 0.6_real64 * n) < 0.12_real64 * n) u(i, j) = u(i, j) + 4
      end do
    end do
  end subroutine

  subroutine exchange()
    integer :: lower, upper, i, j
    i = extent(1)
    j = extent(2)
    call MPI_Cart_shift(plate, 1, 1, lower, upper, error)
    call swap(u(1:i, j), upper, u(1:i, 0), lower)
    call swap(u(1:i, 1), lower, u(1:i, j + 1), upper)
    call MPI_Cart_shift(plate, 0, 1, lower, upper, error)
    call swap(u(i, 1:j), upper, u(0, 1:j), lower)
    call swap(u(1, 1:j), lower, u(i + 1, 1:j), upper)
  end subroutine

  subroutine swap(mine, to, theirs, from)
    real(real64), intent(in) :: mine(:)
    real(real64), intent(out) :: theirs(:)
    integer, intent(in) :: to, from
    real(real64) :: out(size(mine)), in(size(mine))
    out = mine
    call MPI_Sendrecv(out, size(out), MPI_DOUBLE_PRECISION, to, 0, in, size(in), MPI_DOUBLE_PRECISION, from, 0, &
                      plate, MPI_STATUS_IGNORE, error)
    theirs = in
  end subroutine

  subroutine advance()
    integer :: i, j
    do j = 1, extent(2)
      do i = 1, extent(1)
        next(i, j) = u(i, j) + r * ((u(i - 1, j) + u(i + 1, j)) + (u(i, j - 1) + u(i, j + 1)) - 4 * u(i, j))
      end do
    end do
    u(1:extent(1), 1:extent(2)) = next(1:extent(1), 1:extent(2))
  end subroutine

  subroutine report()
    real(real64) :: mine
    mine = maxval(u(1:extent(1), 1:extent(2)))
    call MPI_Reduce(mine, hottest, 1, MPI_DOUBLE_PRECISION, MPI_MAX, 0, plate, error)
    if (rank == 0) print '(a, i0, a, f0.6)', 'heat: step ', step, ', hottest point ', hottest
    flush (6)
    call field%set('step', step)
    call field%publish(error)
  end subroutine

  ! Writes the whole plate, without ghost cells, in the order of the grid.
  subroutine save_plate()
    integer :: file, block
    call MPI_File_open(plate, folder // '/final.bin', MPI_MODE_CREATE + MPI_MODE_WRONLY, MPI_INFO_NULL, file, error)
    call MPI_Type_create_subarray(2, [n, n], extent, origin, MPI_ORDER_FORTRAN, MPI_DOUBLE_PRECISION, block, error)
    call MPI_Type_commit(block, error)
    call MPI_File_set_view(file, 0_MPI_OFFSET_KIND, MPI_DOUBLE_PRECISION, block, 'native', MPI_INFO_NULL, error)
    call write_block(file, u(1:extent(1), 1:extent(2)))
    call MPI_File_close(file, error)
  end subroutine

  subroutine write_block(file, values)
    integer, intent(in) :: file
    real(real64), intent(in), contiguous :: values(:, :)
    call MPI_File_write_all(file, values, size(values), MPI_DOUBLE_PRECISION, MPI_STATUS_IGNORE, error)
  end subroutine
end program
