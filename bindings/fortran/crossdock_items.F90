! Items: data objects that exactly one task owns (CDI). Use this module together with the module `crossdock`:
!
!   use crossdock
!   use crossdock_items
!   type(crossdock_item) :: frame
!   real(real64), pointer :: x(:, :)
!   call frame%create(session, 'frame.1', 8_int64 * 640 * 272, stat)
!   call frame%view(x, [640, 272], stat)
!   x = 0
!   call frame%transfer('detect/1', stat)      ! x is void now: it is the other task's memory
!   call frame%access(session, 'frame.1', stat)
!   call frame%free()
!
! A pointer into an item is invalid after transfer, share, unshare, resize, destroy and free. crossdock.h describes the
! calls under the same names: their meaning, waits and errors.
!
! SPDX-License-Identifier: Apache-2.0
module crossdock_items
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: real32, real64, int32, int64
  use crossdock
  use crossdock_objects, only: raise
  implicit none
  private
  public :: crossdock_item, crossdock_item_info, crossdock_item_find, crossdock_register_number
  public :: crossdock_item_key_text, crossdock_item_owner_text
  public :: CROSSDOCK_COOPERATIVE, CROSSDOCK_VERIFIED, CROSSDOCK_STRICT
  public :: CROSSDOCK_KEEP, CROSSDOCK_RETURN, CROSSDOCK_DESTROY
  public :: CROSSDOCK_ITEM_HELD, CROSSDOCK_ITEM_WAITING, CROSSDOCK_ITEM_SHARED, CROSSDOCK_ITEM_COPYING

  enum, bind(c)
    enumerator :: CROSSDOCK_LEVEL_DEFAULT = 0
    enumerator :: CROSSDOCK_COOPERATIVE = 1
    enumerator :: CROSSDOCK_VERIFIED = 2
    enumerator :: CROSSDOCK_STRICT = 3
  end enum
  enum, bind(c)
    enumerator :: CROSSDOCK_POLICY_DEFAULT = 0
    enumerator :: CROSSDOCK_KEEP = 1
    enumerator :: CROSSDOCK_RETURN = 2
    enumerator :: CROSSDOCK_DESTROY = 3
  end enum
  enum, bind(c)
    enumerator :: CROSSDOCK_ITEM_HELD = 1
    enumerator :: CROSSDOCK_ITEM_WAITING = 2
    enumerator :: CROSSDOCK_ITEM_SHARED = 3
    enumerator :: CROSSDOCK_ITEM_COPYING = 4
  end enum

  type, bind(c) :: c_item_options
    integer(c_int32_t) :: level = CROSSDOCK_LEVEL_DEFAULT
    integer(c_int32_t) :: on_death = CROSSDOCK_POLICY_DEFAULT
  end type

  !> The information that the daemon has about an item.
  type, bind(c) :: crossdock_item_info
    character(kind=c_char) :: key(128)
    character(kind=c_char) :: owner(128)
    character(kind=c_char) :: creator(128)
    integer(c_int64_t) :: size, since_ms, transfers, copies
    integer(c_int32_t) :: state, level, on_death, readers, waiting, mine
  end type

  !> An item that this task owns or reads. `free` closes the item in this process; if this task owns the item, it stays
  !> the owner.
  type :: crossdock_item
    type(c_ptr) :: reference = c_null_ptr
  contains
    procedure :: create => item_create
    procedure :: access => item_access
    procedure :: access_any => item_access_any
    procedure :: read => item_read
    procedure :: transfer => item_transfer
    procedure :: copy => item_copy
    procedure :: destroy => item_destroy
    procedure :: share => item_share
    procedure :: unshare => item_unshare
    procedure :: resize => item_resize
    procedure :: data => item_data
    procedure :: writable => item_writable
    procedure :: region => item_region
    procedure :: free => item_free
    !> view(pointer, stat): the whole item, as elements of a type. view(pointer, shape, stat): rank 2 or 3.
    generic :: view => r32_1, r32_2, r32_3, r64_1, r64_2, r64_3, i32_1, i32_2, i32_3, i64_1, i64_2, i64_3
    procedure, private :: r32_1, r32_2, r32_3, r64_1, r64_2, r64_3, i32_1, i32_2, i32_3, i64_1, i64_2, i64_3
  end type

  interface
    function c_item_create(session, key, size, options, item) bind(c, name="crossdock_item_create") result(status)
      import :: c_int, c_ptr, c_char, c_int64_t, c_item_options
      type(c_ptr), value :: session
      character(kind=c_char), intent(in) :: key(*)
      integer(c_int64_t), value :: size
      type(c_item_options), intent(in) :: options
      type(c_ptr), intent(inout) :: item
      integer(c_int) :: status
    end function
    function c_item_find(session, key, info) bind(c, name="crossdock_item_find") result(status)
      import :: c_int, c_ptr, c_char, crossdock_item_info
      type(c_ptr), value :: session
      character(kind=c_char), intent(in) :: key(*)
      type(crossdock_item_info), intent(inout) :: info
      integer(c_int) :: status
    end function
    function c_item_access(session, key, timeout_ms, item) bind(c, name="crossdock_item_access") result(status)
      import :: c_int, c_ptr, c_char, c_int64_t
      type(c_ptr), value :: session
      character(kind=c_char), intent(in) :: key(*)
      integer(c_int64_t), value :: timeout_ms
      type(c_ptr), intent(inout) :: item
      integer(c_int) :: status
    end function
    function c_item_access_any(session, keys, count, timeout_ms, index, item) bind(c, name="crossdock_item_access_any") &
      result(status)
      import :: c_int, c_ptr, c_int64_t, c_size_t
      type(c_ptr), value :: session
      type(c_ptr), intent(in) :: keys(*)
      integer(c_size_t), value :: count
      integer(c_int64_t), value :: timeout_ms
      integer(c_size_t), intent(inout) :: index
      type(c_ptr), intent(inout) :: item
      integer(c_int) :: status
    end function
    function c_item_read(session, key, timeout_ms, item) bind(c, name="crossdock_item_read") result(status)
      import :: c_int, c_ptr, c_char, c_int64_t
      type(c_ptr), value :: session
      character(kind=c_char), intent(in) :: key(*)
      integer(c_int64_t), value :: timeout_ms
      type(c_ptr), intent(inout) :: item
      integer(c_int) :: status
    end function
    function c_item_transfer(item, to) bind(c, name="crossdock_item_transfer") result(status)
      import :: c_int, c_ptr, c_char
      type(c_ptr), value :: item
      character(kind=c_char), intent(in) :: to(*)
      integer(c_int) :: status
    end function
    function c_item_copy(item, key, copy) bind(c, name="crossdock_item_copy") result(status)
      import :: c_int, c_ptr, c_char
      type(c_ptr), value :: item
      character(kind=c_char), intent(in) :: key(*)
      type(c_ptr), intent(inout) :: copy
      integer(c_int) :: status
    end function
    function c_item_destroy(item) bind(c, name="crossdock_item_destroy") result(status)
      import :: c_int, c_ptr
      type(c_ptr), value :: item
      integer(c_int) :: status
    end function
    function c_item_share(item) bind(c, name="crossdock_item_share") result(status)
      import :: c_int, c_ptr
      type(c_ptr), value :: item
      integer(c_int) :: status
    end function
    function c_item_unshare(item, timeout_ms) bind(c, name="crossdock_item_unshare") result(status)
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: item
      integer(c_int64_t), value :: timeout_ms
      integer(c_int) :: status
    end function
    function c_item_resize(item, size) bind(c, name="crossdock_item_resize") result(status)
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: item
      integer(c_int64_t), value :: size
      integer(c_int) :: status
    end function
    function c_item_data(item, data, size) bind(c, name="crossdock_item_data") result(status)
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: item
      type(c_ptr), intent(inout) :: data
      integer(c_int64_t), intent(inout) :: size
      integer(c_int) :: status
    end function
    function c_item_writable(item, writable) bind(c, name="crossdock_item_writable") result(status)
      import :: c_int, c_ptr
      type(c_ptr), value :: item
      integer(c_int), intent(inout) :: writable
      integer(c_int) :: status
    end function
    function c_item_region(item, mode, region) bind(c, name="crossdock_item_region") result(status)
      import :: c_int, c_ptr
      type(c_ptr), value :: item
      integer(c_int), value :: mode
      type(c_ptr), intent(inout) :: region
      integer(c_int) :: status
    end function
    function c_item_unref(item) bind(c, name="crossdock_item_unref") result(status)
      import :: c_int, c_ptr
      type(c_ptr), value :: item
      integer(c_int) :: status
    end function
    function c_session_register(session, number) bind(c, name="crossdock_session_register_number") result(status)
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: session
      integer(c_int64_t), value :: number
      integer(c_int) :: status
    end function
  end interface

contains

  integer(int64) function waiting(timeout_ms)
    integer, intent(in), optional :: timeout_ms
    waiting = CROSSDOCK_WAIT
    if (present(timeout_ms)) waiting = timeout_ms
  end function

  !> Makes an item of `size` zero bytes, which this task owns.
  subroutine item_create(item, session, key, size, stat, level, on_death)
    class(crossdock_item), intent(inout) :: item
    type(crossdock_session), intent(in) :: session
    character(*), intent(in) :: key
    integer(int64), intent(in) :: size
    integer, intent(out) :: stat
    integer, intent(in), optional :: level, on_death
    type(c_item_options) :: options
    type(c_ptr) :: given
    if (present(level)) options%level = int(level, c_int32_t)
    if (present(on_death)) options%on_death = int(on_death, c_int32_t)
    stat = c_item_create(session%reference, key // c_null_char, size, options, given)
    if (stat == CROSSDOCK_OK) call adopt(item, given)
  end subroutine

  !> Waits until this task owns the item, and opens it. Without timeout_ms it waits at most 60 s.
  subroutine item_access(item, session, key, stat, timeout_ms)
    class(crossdock_item), intent(inout) :: item
    type(crossdock_session), intent(in) :: session
    character(*), intent(in) :: key
    integer, intent(out) :: stat
    integer, intent(in), optional :: timeout_ms
    type(c_ptr) :: given
    stat = c_item_access(session%reference, key // c_null_char, waiting(timeout_ms), given)
    if (stat == CROSSDOCK_OK) call adopt(item, given)
  end subroutine

  !> Waits for several items and opens the first one that this task owns. `index` (from 1) tells which one it is. Blanks
  !> at the end of a key do not count.
  subroutine item_access_any(item, session, keys, index, stat, timeout_ms)
    class(crossdock_item), intent(inout) :: item
    type(crossdock_session), intent(in) :: session
    character(*), intent(in) :: keys(:)
    integer, intent(out) :: index, stat
    integer, intent(in), optional :: timeout_ms
    character(len(keys) + 1), target :: texts(size(keys))
    type(c_ptr) :: places(size(keys)), given
    integer(c_size_t) :: which
    integer :: n
    do n = 1, size(keys)
      texts(n) = trim(keys(n)) // c_null_char
      places(n) = c_loc(texts(n))
    end do
    which = 0
    stat = c_item_access_any(session%reference, places, size(keys, kind=c_size_t), waiting(timeout_ms), which, given)
    index = int(which) + 1
    if (stat == CROSSDOCK_OK) call adopt(item, given)
  end subroutine

  !> Waits until the owner of an item shares it, and opens the item for reading.
  subroutine item_read(item, session, key, stat, timeout_ms)
    class(crossdock_item), intent(inout) :: item
    type(crossdock_session), intent(in) :: session
    character(*), intent(in) :: key
    integer, intent(out) :: stat
    integer, intent(in), optional :: timeout_ms
    type(c_ptr) :: given
    stat = c_item_read(session%reference, key // c_null_char, waiting(timeout_ms), given)
    if (stat == CROSSDOCK_OK) call adopt(item, given)
  end subroutine

  subroutine adopt(item, given)
    class(crossdock_item), intent(inout) :: item
    type(c_ptr), intent(in) :: given
    call item%free()
    item%reference = given
  end subroutine

  !> Hands the item to a task, such as 'combine', 'detect/1' or '#7'. After an error this task still has the item.
  subroutine item_transfer(item, to, stat)
    class(crossdock_item), intent(inout) :: item
    character(*), intent(in) :: to
    integer, intent(out) :: stat
    stat = c_item_transfer(item%reference, to // c_null_char)
  end subroutine

  subroutine item_copy(item, key, copy, stat)
    class(crossdock_item), intent(in) :: item
    character(*), intent(in) :: key
    type(crossdock_item), intent(inout) :: copy
    integer, intent(out) :: stat
    type(c_ptr) :: given
    stat = c_item_copy(item%reference, key // c_null_char, given)
    if (stat == CROSSDOCK_OK) call adopt(copy, given)
  end subroutine

  subroutine item_destroy(item, stat)
    class(crossdock_item), intent(inout) :: item
    integer, intent(out) :: stat
    stat = c_item_destroy(item%reference)
  end subroutine

  subroutine item_share(item, stat)
    class(crossdock_item), intent(inout) :: item
    integer, intent(out) :: stat
    stat = c_item_share(item%reference)
  end subroutine

  subroutine item_unshare(item, stat, timeout_ms)
    class(crossdock_item), intent(inout) :: item
    integer, intent(out) :: stat
    integer, intent(in), optional :: timeout_ms
    stat = c_item_unshare(item%reference, waiting(timeout_ms))
  end subroutine

  subroutine item_resize(item, size, stat)
    class(crossdock_item), intent(inout) :: item
    integer(int64), intent(in) :: size
    integer, intent(out) :: stat
    stat = c_item_resize(item%reference, size)
  end subroutine

  !> The address of the item in this process and its number of bytes, for c_f_pointer.
  subroutine item_data(item, address, bytes, stat)
    class(crossdock_item), intent(in) :: item
    type(c_ptr), intent(out) :: address
    integer(int64), intent(out) :: bytes
    integer, intent(out) :: stat
    address = c_null_ptr
    bytes = 0
    stat = c_item_data(item%reference, address, bytes)
  end subroutine

  subroutine item_writable(item, writable, stat)
    class(crossdock_item), intent(in) :: item
    logical, intent(out) :: writable
    integer, intent(out) :: stat
    integer(c_int) :: answer
    answer = 0
    stat = c_item_writable(item%reference, answer)
    writable = answer /= 0
  end subroutine

  !> Opens the heap in the item as a region, with objects as in any region. CROSSDOCK_CREATE_ONLY makes the heap, and
  !> CROSSDOCK_OPEN_ONLY opens a heap that exists. Free the region before the item is handed on.
  subroutine item_region(item, region, stat, mode)
    class(crossdock_item), intent(in) :: item
    type(crossdock_region), intent(inout) :: region
    integer, intent(out) :: stat
    integer, intent(in), optional :: mode
    integer(c_int) :: way
    type(c_ptr) :: given
    way = CROSSDOCK_OPEN_OR_CREATE
    if (present(mode)) way = int(mode, c_int)
    stat = c_item_region(item%reference, way, given)
    if (stat /= CROSSDOCK_OK) return
    if (c_associated(region%reference)) call region%free()
    region%reference = given
  end subroutine

  subroutine item_free(item)
    class(crossdock_item), intent(inout) :: item
    integer :: ignored
    if (c_associated(item%reference)) ignored = c_item_unref(item%reference)
    item%reference = c_null_ptr
  end subroutine

  !> Gets the information that the daemon has about an item of this workflow, even if another task owns the item.
  subroutine crossdock_item_find(session, key, info, stat)
    type(crossdock_session), intent(in) :: session
    character(*), intent(in) :: key
    type(crossdock_item_info), intent(inout) :: info
    integer, intent(out) :: stat
    stat = c_item_find(session%reference, key // c_null_char, info)
  end subroutine

  function crossdock_item_key_text(info) result(text)
    type(crossdock_item_info), intent(in) :: info
    character(:), allocatable :: text
    text = up_to_zero(info%key)
  end function

  function crossdock_item_owner_text(info) result(text)
    type(crossdock_item_info), intent(in) :: info
    character(:), allocatable :: text
    text = up_to_zero(info%owner)
  end function

  function up_to_zero(bytes) result(text)
    character(kind=c_char), intent(in) :: bytes(:)
    character(:), allocatable :: text
    integer :: n
    text = ''
    do n = 1, size(bytes)
      if (bytes(n) == c_null_char) exit
      text = text // bytes(n)
    end do
  end function

  !> Gives this task a number as a second name: a transfer to '#7' goes to the task that registered 7.
  subroutine crossdock_register_number(session, number, stat)
    type(crossdock_session), intent(in) :: session
    integer(int64), intent(in) :: number
    integer, intent(out) :: stat
    stat = c_session_register(session%reference, number)
  end subroutine

  !> Gives the address of the item's memory. Fails if the memory is too small for an array of this shape and element
  !> size.
  subroutine fitting(item, shape, element, address, stat)
    class(crossdock_item), intent(in) :: item
    integer(int64), intent(in) :: shape(:), element
    type(c_ptr), intent(out) :: address
    integer, intent(out) :: stat
    integer(int64) :: bytes
    integer :: n
    call item%data(address, bytes, stat)
    if (stat /= CROSSDOCK_OK) return
    bytes = bytes / element
    do n = 1, size(shape)
      if (shape(n) < 1) then
        bytes = -1
      else
        bytes = bytes / shape(n)
      end if
    end do
    if (bytes < 1) call raise(stat, CROSSDOCK_INVALID, 'the item is smaller than an array of that shape; see its size')
  end subroutine

#define N1 r32_1
#define N2 r32_2
#define N3 r32_3
#define VALUE real(real32)
#define ELEMENT 4
#include "item_views.inc"
#define N1 r64_1
#define N2 r64_2
#define N3 r64_3
#define VALUE real(real64)
#define ELEMENT 8
#include "item_views.inc"
#define N1 i32_1
#define N2 i32_2
#define N3 i32_3
#define VALUE integer(int32)
#define ELEMENT 4
#include "item_views.inc"
#define N1 i64_1
#define N2 i64_2
#define N3 i64_3
#define VALUE integer(int64)
#define ELEMENT 8
#include "item_views.inc"
end module
