! Objects of a region in Fortran: pointers into shared memory, without a copy.
! SPDX-License-Identifier: Apache-2.0
module crossdock_objects
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: real32, real64, int32, int64
  use crossdock_c
  implicit none
  private
  public :: crossdock_object, raise, text_of, layout_of

  !> An object that was found by name or handle. It is valid as long as the program holds a reference to the object's
  !> region.
  type :: crossdock_object
    type(crossdock_handle) :: handle             !! the same in every process
    type(c_ptr) :: address = c_null_ptr          !! in this process; for a container, of its header
    integer(int64) :: size = 0                   !! in bytes; for a container, of its header
    logical :: created = .false.                 !! true if this call made the object
    character(:), allocatable :: type_name       !! in the grammar of crossdock.h: f64, f32[4][8], vector<f64> ..
    type(c_ptr) :: region = c_null_ptr           !! borrowed
  contains
    !> view(pointer, stat): points `pointer` to the elements, with no copy. The rank is 0 for scalars, 1 for T[n] and
    !> vector<T>, and that of the object for T[m][n] and ndarray<T>, up to 4. For an object in C order the dimensions are
    !> reversed, because the memory is the same. If the elements of a container are fixed arrays, their dimensions come
    !> first: a vector<f64[3]> has rank 2. The pointer is invalid after resize or reshape by any task.
    generic :: view => r32_0, r32_1, r32_2, r32_3, r32_4, r64_0, r64_1, r64_2, r64_3, r64_4, &
                       i32_0, i32_1, i32_2, i32_3, i32_4, i64_0, i64_1, i64_2, i64_3, i64_4
    !> resize(elements, stat): gives a vector<T> this number of elements; new elements are zero. After NO_SPACE the
    !> vector is unchanged.
    generic :: resize => resize_32, resize_64
    !> reserve(elements, stat): makes room for this number of elements in a vector<T>, without changing its size.
    procedure :: reserve
    !> elements(count, stat): gives the number of elements of a vector<T>, or the length of a string.
    procedure :: elements
    !> reshape(shape, stat [, order]): gives an ndarray<T> this shape. The elements keep their order in memory, so their
    !> indices change; new elements are zero.
    generic :: reshape => reshape_32, reshape_64
    !> order_and_shape(order, shape, stat): gives the order of an ndarray<T>, and its shape. Unlike view, it does not
    !> reverse the dimensions.
    procedure :: order_and_shape
    !> assign(text, stat) changes the text of a string, and text(text, stat) gives it.
    procedure :: assign
    procedure :: text
    procedure, private :: resize_32, resize_64, reshape_32, reshape_64
    procedure, private :: r32_0, r32_1, r32_2, r32_3, r32_4, r64_0, r64_1, r64_2, r64_3, r64_4
    procedure, private :: i32_0, i32_1, i32_2, i32_3, i32_4, i64_0, i64_1, i64_2, i64_3, i64_4
  end type

contains

  !> Stores a status and a message as the last failure of this thread, for crossdock_error_message.
  subroutine raise(stat, status, message)
    integer, intent(out) :: stat
    integer, intent(in) :: status
    character(*), intent(in) :: message
    stat = c_error_raise(int(status, c_int), message // c_null_char)
  end subroutine

  !> Converts a C text to a Fortran string.
  function text_of(pointer) result(text)
    type(c_ptr), intent(in) :: pointer
    character(:), allocatable :: text
    character(kind=c_char), pointer :: bytes(:)
    integer :: n
    call c_f_pointer(pointer, bytes, [4096])
    n = 0
    do while (n < 4096)
      if (bytes(n + 1) == c_null_char) exit
      n = n + 1
    end do
    allocate (character(n) :: text)
    text = transfer(bytes(1:n), text)
  end function

  !> The number of bytes of one value of a type.
  subroutine layout_of(type_name, size, stat)
    character(*), intent(in) :: type_name
    integer(int64), intent(out) :: size
    integer, intent(out) :: stat
    integer(c_int32_t) :: align
    size = 0
    stat = c_type_layout(type_name // c_null_char, size, align)
  end subroutine

  !> Takes the element type from the type, such as "f64" from "vector<f64>". Fails if the object is of another kind.
  subroutine element_of(object, kind, element, element_size, stat)
    class(crossdock_object), intent(in) :: object
    character(*), intent(in) :: kind
    character(:), allocatable, intent(out) :: element
    integer(int64), intent(out) :: element_size
    integer, intent(out) :: stat
    element = ''
    element_size = 0
    if (.not. allocated(object%type_name)) then
      call raise(stat, CROSSDOCK_INVALID, 'the object has not been opened')
    else if (index(object%type_name, kind // '<') /= 1) then
      call raise(stat, CROSSDOCK_WRONG_TYPE, 'the object is of type ' // object%type_name // ', not ' // kind // '<..>')
    else
      element = object%type_name(len(kind) + 2:len(object%type_name) - 1)
      call layout_of(element, element_size, stat)
    end if
  end subroutine

  !> The address and the number of an object's elements. `wanted` lists the element types that are allowed, separated by
  !> blanks.
  subroutine locate(object, wanted, rank, address, extents, stat)
    class(crossdock_object), intent(in) :: object
    character(*), intent(in) :: wanted
    integer, intent(in) :: rank
    type(c_ptr), intent(out) :: address
    integer(int64), intent(out) :: extents(CROSSDOCK_RANK_MAX)
    integer, intent(out) :: stat
    character(:), allocatable :: element
    integer(int64) :: element_size, found(CROSSDOCK_RANK_MAX), fixed(CROSSDOCK_RANK_MAX)
    integer(c_int32_t) :: its_rank
    integer(c_int) :: order
    integer :: at, closing, fixed_rank
    address = object%address
    extents = 0
    its_rank = 0
    fixed_rank = 0
    order = CROSSDOCK_ORDER_C
    if (.not. allocated(object%type_name)) then
      call raise(stat, CROSSDOCK_INVALID, 'the object has not been opened')
      return
    end if
    if (index(object%type_name, 'vector<') == 1) then
      call element_of(object, 'vector', element, element_size, stat)
      if (stat /= CROSSDOCK_OK) return
      its_rank = 1
      stat = c_vector_view(object%region, object%address, element_size, address, found(1))
    else if (index(object%type_name, 'ndarray<') == 1) then
      call element_of(object, 'ndarray', element, element_size, stat)
      if (stat /= CROSSDOCK_OK) return
      stat = c_ndarray_view(object%region, object%address, element_size, address, order, its_rank, found)
      if (stat == CROSSDOCK_OK .and. its_rank == 0 .and. .not. c_associated(address)) then
        call raise(stat, CROSSDOCK_WRONG_TYPE, 'the ndarray has no shape yet; reshape it first')
        return
      end if
    else
      stat = CROSSDOCK_OK
      element = object%type_name
    end if
    if (stat /= CROSSDOCK_OK) return
    at = index(element // '[', '[')
    if (index(' ' // wanted // ' ', ' ' // element(1:at - 1) // ' ') == 0) then
      call raise(stat, CROSSDOCK_WRONG_TYPE, 'the object is of type ' // object%type_name // &
                 ', its elements cannot be seen as ' // wanted)
      return
    end if
    do while (at < len(element) .and. its_rank + fixed_rank < CROSSDOCK_RANK_MAX)
      closing = index(element(at:), ']') + at - 1
      fixed_rank = fixed_rank + 1
      read (element(at + 1:closing - 1), *) fixed(fixed_rank)
      at = closing + 1
    end do
    if (its_rank + fixed_rank /= rank) then
      call raise(stat, CROSSDOCK_WRONG_TYPE, 'the object of type ' // object%type_name // ' has rank ' // &
                 achar(iachar('0') + its_rank + fixed_rank) // ', the pointer has rank ' // achar(iachar('0') + rank))
    else
      if (order == CROSSDOCK_ORDER_C) found(1:its_rank) = found(its_rank:1:-1)
      extents(1:rank) = [fixed(fixed_rank:1:-1), found(1:its_rank)]
      ! If there are no elements, the address may be null, but a Fortran pointer to an empty array must have an address.
      ! Any address serves.
      if (.not. c_associated(address)) address = object%address
    end if
  end subroutine

  subroutine resize_64(object, elements, stat)
    class(crossdock_object), intent(in) :: object
    integer(int64), intent(in) :: elements
    integer, intent(out) :: stat
    character(:), allocatable :: element
    integer(int64) :: element_size
    call element_of(object, 'vector', element, element_size, stat)
    if (stat == CROSSDOCK_OK) stat = c_vector_resize(object%region, object%address, element_size, elements)
  end subroutine

  subroutine resize_32(object, elements, stat)
    class(crossdock_object), intent(in) :: object
    integer(int32), intent(in) :: elements
    integer, intent(out) :: stat
    call resize_64(object, int(elements, int64), stat)
  end subroutine

  subroutine reserve(object, elements, stat)
    class(crossdock_object), intent(in) :: object
    integer(int64), intent(in) :: elements
    integer, intent(out) :: stat
    character(:), allocatable :: element
    integer(int64) :: element_size
    call element_of(object, 'vector', element, element_size, stat)
    if (stat == CROSSDOCK_OK) stat = c_vector_reserve(object%region, object%address, element_size, elements)
  end subroutine

  subroutine elements(object, count, stat)
    class(crossdock_object), intent(in) :: object
    integer(int64), intent(out) :: count
    integer, intent(out) :: stat
    character(:), allocatable :: element
    integer(int64) :: element_size
    type(c_ptr) :: data
    logical :: of_text
    count = 0
    element_size = 1
    stat = CROSSDOCK_OK
    of_text = .false.
    if (allocated(object%type_name)) of_text = object%type_name == 'string'
    if (.not. of_text) call element_of(object, 'vector', element, element_size, stat)
    if (stat == CROSSDOCK_OK) stat = c_vector_view(object%region, object%address, element_size, data, count)
  end subroutine

  subroutine reshape_64(object, shape, stat, order)
    class(crossdock_object), intent(in) :: object
    integer(int64), intent(in) :: shape(:)
    integer, intent(out) :: stat
    integer, intent(in), optional :: order
    character(:), allocatable :: element
    integer(int64) :: element_size
    integer :: its_order
    its_order = CROSSDOCK_ORDER_FORTRAN
    if (present(order)) its_order = order
    call element_of(object, 'ndarray', element, element_size, stat)
    if (stat == CROSSDOCK_OK) stat = c_ndarray_reshape(object%region, object%address, element_size, its_order, &
                                                       size(shape, kind=int32), shape)
  end subroutine

  subroutine reshape_32(object, shape, stat, order)
    class(crossdock_object), intent(in) :: object
    integer(int32), intent(in) :: shape(:)
    integer, intent(out) :: stat
    integer, intent(in), optional :: order
    call reshape_64(object, int(shape, int64), stat, order)
  end subroutine

  subroutine order_and_shape(object, order, shape, stat)
    class(crossdock_object), intent(in) :: object
    integer, intent(out) :: order
    integer(int64), allocatable, intent(out) :: shape(:)
    integer, intent(out) :: stat
    character(:), allocatable :: element
    integer(int64) :: element_size, extents(CROSSDOCK_RANK_MAX)
    integer(c_int32_t) :: rank
    type(c_ptr) :: data
    order = CROSSDOCK_ORDER_C
    call element_of(object, 'ndarray', element, element_size, stat)
    if (stat /= CROSSDOCK_OK) return
    stat = c_ndarray_view(object%region, object%address, element_size, data, order, rank, extents)
    if (stat == CROSSDOCK_OK) shape = extents(1:rank)
  end subroutine

  !> Fails if the object is not a string.
  subroutine string_only(object, stat)
    class(crossdock_object), intent(in) :: object
    integer, intent(out) :: stat
    stat = CROSSDOCK_OK
    if (.not. allocated(object%type_name)) then
      call raise(stat, CROSSDOCK_INVALID, 'the object has not been opened')
    else if (object%type_name /= 'string') then
      call raise(stat, CROSSDOCK_WRONG_TYPE, 'the object is of type ' // object%type_name // ', not string')
    end if
  end subroutine

  subroutine assign(object, text, stat)
    class(crossdock_object), intent(in) :: object
    character(*), intent(in) :: text
    integer, intent(out) :: stat
    call string_only(object, stat)
    if (stat == CROSSDOCK_OK) stat = c_string_assign(object%region, object%address, text, len(text, int64))
  end subroutine

  subroutine text(object, value, stat)
    class(crossdock_object), intent(in) :: object
    character(:), allocatable, intent(out) :: value
    integer, intent(out) :: stat
    character(kind=c_char), pointer :: bytes(:)
    integer(int64) :: length
    type(c_ptr) :: data
    call string_only(object, stat)
    if (stat /= CROSSDOCK_OK) return
    stat = c_vector_view(object%region, object%address, 1_int64, data, length)
    if (stat /= CROSSDOCK_OK) return
    allocate (character(length) :: value)
    if (length == 0) return
    call c_f_pointer(data, bytes, [length])
    value = transfer(bytes, value)
  end subroutine

#define OBJECT crossdock_object
#define N0 r32_0
#define N1 r32_1
#define N2 r32_2
#define N3 r32_3
#define N4 r32_4
#define VALUE real(real32)
#define ELEMENTS 'f32'
#include "views.inc"
#define N0 r64_0
#define N1 r64_1
#define N2 r64_2
#define N3 r64_3
#define N4 r64_4
#define VALUE real(real64)
#define ELEMENTS 'f64'
#include "views.inc"
#define N0 i32_0
#define N1 i32_1
#define N2 i32_2
#define N3 i32_3
#define N4 i32_4
#define VALUE integer(int32)
#define ELEMENTS 'i32 u32'
#include "views.inc"
#define N0 i64_0
#define N1 i64_1
#define N2 i64_2
#define N3 i64_3
#define N4 i64_4
#define VALUE integer(int64)
#define ELEMENTS 'i64 u64'
#include "views.inc"
end module
