! The declarations of crossdock.h for checkpoints in Fortran. Programs do not use this module, but the module
! crossdock_checkpoints. SPDX-License-Identifier: Apache-2.0
module crossdock_checkpoints_c
  use, intrinsic :: iso_c_binding
  implicit none
  private :: c_ptr, c_char, c_int, c_int32_t, c_int64_t, c_size_t, c_double
  public

  interface
    integer(c_int) function c_restart(folder, name, checkpoint) bind(c, name='crossdock_checkpoint_restart')
      import :: c_int, c_ptr, c_char
      character(kind=c_char), intent(in) :: folder(*)
      type(c_ptr), value :: name
      type(c_ptr), intent(out) :: checkpoint
    end function
    integer(c_int) function c_unref(checkpoint) bind(c, name='crossdock_checkpoint_unref')
      import :: c_int, c_ptr
      type(c_ptr), value :: checkpoint
    end function
    integer(c_int) function c_path(checkpoint, buffer, size) bind(c, name='crossdock_checkpoint_path')
      import :: c_int, c_ptr, c_char, c_size_t
      type(c_ptr), value :: checkpoint
      character(kind=c_char), intent(out) :: buffer(*)
      integer(c_size_t), value :: size
    end function
    integer(c_int) function c_skipped(checkpoint, count, buffer, size) bind(c, name='crossdock_checkpoint_skipped')
      import :: c_int, c_ptr, c_char, c_size_t, c_int32_t
      type(c_ptr), value :: checkpoint
      integer(c_int32_t), intent(out) :: count
      character(kind=c_char), intent(out) :: buffer(*)
      integer(c_size_t), value :: size
    end function
    integer(c_int) function c_sequence(checkpoint, series, value) bind(c, name='crossdock_checkpoint_sequence')
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: checkpoint, series
      integer(c_int64_t), intent(out) :: value
    end function
    integer(c_int) function c_integer(checkpoint, series, name, value) bind(c, name='crossdock_checkpoint_integer')
      import :: c_int, c_ptr, c_char, c_int64_t
      type(c_ptr), value :: checkpoint, series
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), intent(out) :: value
    end function
    integer(c_int) function c_real(checkpoint, series, name, value) bind(c, name='crossdock_checkpoint_real')
      import :: c_int, c_ptr, c_char, c_double
      type(c_ptr), value :: checkpoint, series
      character(kind=c_char), intent(in) :: name(*)
      real(c_double), intent(out) :: value
    end function
    integer(c_int) function c_text(checkpoint, series, name, buffer, size) bind(c, name='crossdock_checkpoint_text')
      import :: c_int, c_ptr, c_char, c_size_t
      type(c_ptr), value :: checkpoint, series
      character(kind=c_char), intent(in) :: name(*)
      character(kind=c_char), intent(out) :: buffer(*)
      integer(c_size_t), value :: size
    end function
    integer(c_int) function c_read(checkpoint, series, name, into, bytes) bind(c, name='crossdock_checkpoint_read')
      import :: c_int, c_ptr, c_char, c_size_t
      type(c_ptr), value :: checkpoint, series, into
      character(kind=c_char), intent(in) :: name(*)
      integer(c_size_t), value :: bytes
    end function
    integer(c_int) function c_publisher_restart(publisher, folder, checkpoint) bind(c, name='crossdock_publisher_restart')
      import :: c_int, c_ptr, c_char
      type(c_ptr), value :: publisher
      character(kind=c_char), intent(in) :: folder(*)
      type(c_ptr), intent(inout) :: checkpoint
    end function
    integer(c_int) function c_session_default(session) bind(c, name='crossdock_session_default')
      import :: c_int, c_ptr
      type(c_ptr), intent(out) :: session
    end function
    integer(c_int) function c_ranked_name(name, rank, buffer, size) bind(c, name='crossdock_ranked_name')
      import :: c_int, c_char, c_size_t, c_int64_t
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: rank
      character(kind=c_char), intent(out) :: buffer(*)
      integer(c_size_t), value :: size
    end function
  end interface
end module
