! A Fortran program that uses ordinary files: `lines read FILE` copies a text file to standard output, and `lines write
! FILE` copies standard input to a text file.
program lines
  use, intrinsic :: iso_fortran_env, only: input_unit, output_unit
  implicit none
  character(256) :: how, path, line
  integer :: file, stat
  call get_command_argument(1, how)
  call get_command_argument(2, path)
  if (how == 'write') then
    open (newunit=file, file=path, status='replace', action='write')
    do
      read (input_unit, '(a)', iostat=stat) line
      if (stat /= 0) exit
      write (file, '(a)') trim(line)
    end do
  else
    open (newunit=file, file=path, status='old', action='read')
    do
      read (file, '(a)', iostat=stat) line
      if (stat /= 0) exit
      write (output_unit, '(a)') trim(line)
    end do
  end if
  close (file)
end program
