! Appends an element to a vector that only this program uses. The C++ program uses the same region as this program.
program main
  use, intrinsic :: iso_fortran_env, only: int64, real64
  use crossdock
  implicit none
  type(crossdock_session) :: session
  type(crossdock_region) :: region
  type(crossdock_object) :: runs
  real(real64), pointer :: x(:)
  integer :: stat

  call session%connect(stat)
  if (stat /= CROSSDOCK_OK) error stop 'no session'
  call session%region('consumer', region, stat, size=1048576_int64)
  if (stat /= CROSSDOCK_OK) error stop 'no region'
  call region%object('fortran', 'vector<f64>', runs, stat)
  if (stat /= CROSSDOCK_OK) error stop 'no vector'
  call runs%view(x, stat)
  call runs%resize(size(x) + 1, stat)
  if (stat /= CROSSDOCK_OK) error stop 'not resized'
  call runs%view(x, stat)
  print '(a, i0)', 'fortran ', size(x)
end program
