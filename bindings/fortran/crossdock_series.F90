! Series in Fortran. A solver changes arrays in place and publishes them as versions that never change.
!
!   type(crossdock_publisher) :: field
!   real(real64), pointer :: u(:, :)
!   call field%variable('u', 'f64', [nx, ny])
!   call session%publisher('field', field, stat)
!   call field%view('u', u, stat)
!   do step = 1, steps
!     call advance(u)
!     call field%set('step', step)
!     call field%publish(stat)
!   end do
!
! Shapes here are in Fortran's order. In the series, and so for every other language, the dimensions are in reverse
! order, because the memory is the same. crossdock.h describes the calls. Programs use the module crossdock, which
! includes the module crossdock_series. SPDX-License-Identifier: Apache-2.0
module crossdock_series
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: real32, real64, int32, int64
  use crossdock_c
  use crossdock_objects, only: raise
  use crossdock_series_c
  implicit none
  private
  public :: crossdock_publisher, crossdock_observer, crossdock_version, crossdock_change
  public :: crossdock_publisher_statistics, open_publisher, open_observer, narrow
  public :: CROSSDOCK_FULL_WITHHOLD, CROSSDOCK_FULL_FAIL, CROSSDOCK_FULL_TAKE_BACK, CROSSDOCK_PAGES_STAY
  public :: CROSSDOCK_PAGES_MAY_MOVE, CROSSDOCK_SERIES_LIVE, CROSSDOCK_SERIES_ENDED
  public :: CROSSDOCK_SERIES_DIED, CROSSDOCK_DETECT_AUTO, CROSSDOCK_DETECT_HINTS, CROSSDOCK_DETECT_PRIVATE_COPIES
  public :: CROSSDOCK_DETECT_WRITE_PROTECT, CROSSDOCK_DETECT_COPY_ALL, CROSSDOCK_DETECT_COMPARE

  !> A named value.
  type :: named_value
    character(:), allocatable :: of     !! for a constant: the name of its variable
    character(:), allocatable :: name
    type(c_value) :: value
  end type

  type :: declared
    character(:), allocatable :: name, elements
    integer :: rank = 0
    integer(int64) :: extents(CROSSDOCK_RANK_MAX) = 0   !! the declared shape, in Fortran's order
    integer(int64) :: most(CROSSDOCK_RANK_MAX) = 0
  end type

  !> A publisher. First declare its variables, then call session%publisher. `free` ends the series; pointers from view
  !> are invalid afterwards.
  type :: crossdock_publisher
    type(c_ptr) :: reference = c_null_ptr
    type(declared), allocatable, private :: variables(:)
    type(named_value), allocatable, private :: constants(:), attributes(:), values(:)
    character(:), allocatable, private :: mistake
  contains
    !> variable(name, type [, shape [, max_shape]]): declares a variable. Call it before session%publisher, which opens
    !> the publisher and also reports wrong declarations.
    generic :: variable => variable_0, variable_32, variable_64
    !> constant(variable, name, value): declares a value that belongs to a variable and never changes. Call it before
    !> session%publisher.
    generic :: constant => constant_i32, constant_i64, constant_r64, constant_text
    !> attribute(name, kind): declares an attribute; kind is 'i64', 'u64', 'f64' or 'string'. An attribute that is set
    !> and not declared is declared by the first publish.
    procedure :: attribute => publisher_attribute
    !> set(name, value): sets an attribute of the next versions.
    generic :: set => set_i32, set_i64, set_r32, set_r64, set_text
    !> view(variable, pointer, stat): points `pointer` (of rank 0 to 4) to the elements, in place. Call view again after
    !> begin, after publish of a begun version, after abandon and after resize. The pages stay where they are, so that
    !> the array can be registered (RDMA, io_uring, a pending MPI_Irecv). There are two exceptions:
    !> pages=CROSSDOCK_PAGES_MAY_MOVE, and begin, which puts other pages at the array's addresses.
    generic :: view => p_r32_0, p_r32_1, p_r32_2, p_r32_3, p_r32_4, p_r64_0, p_r64_1, p_r64_2, p_r64_3, p_r64_4, &
      p_i32_0, p_i32_1, p_i32_2, p_i32_3, p_i32_4, p_i64_0, p_i64_1, p_i64_2, p_i64_3, p_i64_4
    !> publish(stat [, sequence]): `sequence` is the version's number, or 0 if the version was withheld for lack of
    !> room. The changes of a withheld version are part of the next version.
    procedure :: publish => publisher_publish
    procedure :: begin => publisher_begin
    procedure :: abandon => publisher_abandon
    generic :: resize => resize_32, resize_64
    procedure :: touched => publisher_touched
    procedure :: statistics => publisher_statistics
    procedure :: end => publisher_end
    procedure :: free => publisher_free
    procedure, private :: locate => publisher_locate
    procedure, private :: variable_0, variable_32, variable_64, resize_32, resize_64
    procedure, private :: constant_i32, constant_i64, constant_r64, constant_text
    procedure, private :: set_i32, set_i64, set_r32, set_r64, set_text
    procedure, private :: p_r32_0, p_r32_1, p_r32_2, p_r32_3, p_r32_4, p_r64_0, p_r64_1, p_r64_2, p_r64_3, p_r64_4, &
      p_i32_0, p_i32_1, p_i32_2, p_i32_3, p_i32_4, p_i64_0, p_i64_1, p_i64_2, p_i64_3, p_i64_4
  end type

  !> An observer. `free` closes it; its versions stay valid.
  type :: crossdock_observer
    type(c_ptr) :: reference = c_null_ptr
  contains
    procedure :: latest => observer_latest
    procedure :: next => observer_next
    !> each(version, stat [, timeout_ms]): gives the versions one after the other. version%missed is the number of
    !> versions that `each` skipped just before this version, because they no longer existed.
    procedure :: each => observer_each
    procedure :: at => observer_at
    procedure :: state => observer_state
    procedure :: id => observer_id
    !> constant(variable, name, value, stat): gives a constant of a variable.
    generic :: constant => known_i32, known_i64, known_r64, known_text
    procedure, private :: known_i32, known_i64, known_r64, known_text
    procedure :: free => observer_free
  end type

  !> A version. `free` gives it up; pointers from view are invalid afterwards.
  type :: crossdock_version
    type(c_ptr) :: reference = c_null_ptr
  contains
    procedure :: sequence => version_sequence
    procedure :: time_ns => version_time
    procedure :: missed => version_missed
    procedure :: valid => version_valid
    !> view(variable, pointer, stat): points `pointer` to the elements of a variable. The elements are read-only:
    !> writing to them ends the program.
    generic :: view => v_r32_0, v_r32_1, v_r32_2, v_r32_3, v_r32_4, v_r64_0, v_r64_1, v_r64_2, v_r64_3, v_r64_4, &
      v_i32_0, v_i32_1, v_i32_2, v_i32_3, v_i32_4, v_i64_0, v_i64_1, v_i64_2, v_i64_3, v_i64_4
    procedure :: shape => version_shape
    !> attribute(name, value, stat): gives an attribute of the version.
    generic :: attribute => attribute_i32, attribute_i64, attribute_r64, attribute_text
    procedure :: refresh => version_refresh
    procedure :: diff => version_diff
    procedure :: free => version_free
    procedure, private :: locate => version_locate
    procedure, private :: attribute_i32, attribute_i64, attribute_r64, attribute_text
    procedure, private :: v_r32_0, v_r32_1, v_r32_2, v_r32_3, v_r32_4, v_r64_0, v_r64_1, v_r64_2, v_r64_3, v_r64_4, &
      v_i32_0, v_i32_1, v_i32_2, v_i32_3, v_i32_4, v_i64_0, v_i64_1, v_i64_2, v_i64_3, v_i64_4
  end type

contains

  ! ------------------------------------------------------------------ values

  function value_i64(n) result(value)
    integer(int64), intent(in) :: n
    type(c_value) :: value
    value%kind = CROSSDOCK_VALUE_I64
    value%number = n
  end function

  function value_r64(x) result(value)
    real(real64), intent(in) :: x
    type(c_value) :: value
    value%kind = CROSSDOCK_VALUE_F64
    value%number = transfer(x, value%number)
  end function

  !> The text without the blanks at its end. A text of more than 63 bytes gets no zero at its end, so the library
  !> refuses it.
  function value_text(text) result(value)
    character(*), intent(in) :: text
    type(c_value) :: value
    integer :: n
    value%kind = CROSSDOCK_VALUE_TEXT
    n = min(len_trim(text), size(value%text))
    value%text(1:n) = transfer(text(1:n), value%text(1:n))
  end function

  subroutine of_kind(value, kind, name, stat)
    type(c_value), intent(in) :: value
    integer(c_int), intent(in) :: kind
    character(*), intent(in) :: name
    integer, intent(out) :: stat
    stat = CROSSDOCK_OK
    if (value%kind /= kind) call raise(stat, CROSSDOCK_WRONG_TYPE, name // ' is a value of another kind')
  end subroutine

  !> The value as an integer, whether it was published as signed or unsigned.
  subroutine as_integer(value, name, n, stat)
    type(c_value), intent(in) :: value
    character(*), intent(in) :: name
    integer(int64), intent(out) :: n
    integer, intent(out) :: stat
    n = value%number
    stat = CROSSDOCK_OK
    if (value%kind /= CROSSDOCK_VALUE_U64) then
      call of_kind(value, CROSSDOCK_VALUE_I64, name, stat)
    else if (n < 0) then
      n = 0
      call raise(stat, CROSSDOCK_INVALID, name // ' does not fit into an integer of 64 bits')
    end if
  end subroutine

  subroutine as_text(value, name, text, stat)
    type(c_value), intent(in) :: value
    character(*), intent(in) :: name
    character(:), allocatable, intent(out) :: text
    integer, intent(out) :: stat
    integer :: n
    call of_kind(value, CROSSDOCK_VALUE_TEXT, name, stat)
    n = findloc(value%text == c_null_char, .true., dim=1) - 1
    if (n < 0) n = size(value%text)
    allocate (character(n) :: text)
    if (n > 0) text = transfer(value%text(1:n), text)
  end subroutine

  !> Converts to a default integer, if `stat` is OK so far and the number fits.
  subroutine narrow(wide, name, n, stat)
    integer(int64), intent(in) :: wide
    character(*), intent(in) :: name
    integer(int32), intent(out) :: n
    integer, intent(inout) :: stat
    n = 0
    if (stat /= CROSSDOCK_OK) return
    if (wide > huge(n) .or. wide < -huge(n) - 1_int64) then
      call raise(stat, CROSSDOCK_INVALID, name // ' does not fit into a default integer; take an int64')
    else
      n = int(wide, int32)
    end if
  end subroutine

  subroutine put(list, of, name, value)
    type(named_value), allocatable, intent(inout) :: list(:)
    character(*), intent(in) :: of, name
    type(c_value), intent(in) :: value
    integer :: i
    if (.not. allocated(list)) allocate (list(0))
    do i = 1, size(list)
      if (list(i)%of == of .and. list(i)%name == name) then
        list(i)%value = value
        return
      end if
    end do
    list = [list, named_value(of, name, value)]
  end subroutine

  ! --------------------------------------------------------------- publisher

  subroutine variable_64(publisher, name, type, shape, max_shape)
    class(crossdock_publisher), intent(inout) :: publisher
    character(*), intent(in) :: name, type
    integer(int64), intent(in) :: shape(:)
    integer(int64), intent(in), optional :: max_shape(:)
    type(declared) :: fresh
    fresh%name = name
    fresh%elements = type
    fresh%rank = size(shape)
    if (fresh%rank > CROSSDOCK_RANK_MAX) then
      publisher%mistake = 'variable ' // name // ' has more than 8 dimensions'
      return
    end if
    fresh%extents(1:fresh%rank) = shape
    if (present(max_shape)) then
      if (size(max_shape) /= fresh%rank) then
        publisher%mistake = 'variable ' // name // ': shape and max_shape have different numbers of dimensions'
        return
      end if
      fresh%most(1:fresh%rank) = max_shape
    end if
    if (.not. allocated(publisher%variables)) allocate (publisher%variables(0))
    publisher%variables = [publisher%variables, fresh]
  end subroutine

  subroutine variable_32(publisher, name, type, shape, max_shape)
    class(crossdock_publisher), intent(inout) :: publisher
    character(*), intent(in) :: name, type
    integer(int32), intent(in) :: shape(:)
    integer(int32), intent(in), optional :: max_shape(:)
    if (present(max_shape)) then
      call publisher%variable_64(name, type, int(shape, int64), int(max_shape, int64))
    else
      call publisher%variable_64(name, type, int(shape, int64))
    end if
  end subroutine

  subroutine variable_0(publisher, name, type)
    class(crossdock_publisher), intent(inout) :: publisher
    character(*), intent(in) :: name, type
    integer(int64) :: none(0)
    call publisher%variable_64(name, type, none)
  end subroutine

  subroutine constant_i64(publisher, variable, name, value)
    class(crossdock_publisher), intent(inout) :: publisher
    character(*), intent(in) :: variable, name
    integer(int64), intent(in) :: value
    call put(publisher%constants, variable, name, value_i64(value))
  end subroutine

  subroutine constant_i32(publisher, variable, name, value)
    class(crossdock_publisher), intent(inout) :: publisher
    character(*), intent(in) :: variable, name
    integer(int32), intent(in) :: value
    call put(publisher%constants, variable, name, value_i64(int(value, int64)))
  end subroutine

  subroutine constant_r64(publisher, variable, name, value)
    class(crossdock_publisher), intent(inout) :: publisher
    character(*), intent(in) :: variable, name
    real(real64), intent(in) :: value
    call put(publisher%constants, variable, name, value_r64(value))
  end subroutine

  subroutine constant_text(publisher, variable, name, value)
    class(crossdock_publisher), intent(inout) :: publisher
    character(*), intent(in) :: variable, name, value
    call put(publisher%constants, variable, name, value_text(value))
  end subroutine

  subroutine publisher_attribute(publisher, name, kind)
    class(crossdock_publisher), intent(inout) :: publisher
    character(*), intent(in) :: name, kind
    type(c_value) :: value
    select case (kind)
    case ('i64')
      value%kind = CROSSDOCK_VALUE_I64
    case ('u64')
      value%kind = CROSSDOCK_VALUE_U64
    case ('f64')
      value%kind = CROSSDOCK_VALUE_F64
    case ('string')
      value%kind = CROSSDOCK_VALUE_TEXT
    case default
      publisher%mistake = 'attribute ' // name // ': ' // kind // ' is none of i64, u64, f64, string'
      return
    end select
    call put(publisher%attributes, '', name, value)
  end subroutine

  subroutine set_i64(publisher, name, value)
    class(crossdock_publisher), intent(inout) :: publisher
    character(*), intent(in) :: name
    integer(int64), intent(in) :: value
    call put(publisher%values, '', name, value_i64(value))
  end subroutine

  subroutine set_i32(publisher, name, value)
    class(crossdock_publisher), intent(inout) :: publisher
    character(*), intent(in) :: name
    integer(int32), intent(in) :: value
    call put(publisher%values, '', name, value_i64(int(value, int64)))
  end subroutine

  subroutine set_r64(publisher, name, value)
    class(crossdock_publisher), intent(inout) :: publisher
    character(*), intent(in) :: name
    real(real64), intent(in) :: value
    call put(publisher%values, '', name, value_r64(value))
  end subroutine

  subroutine set_r32(publisher, name, value)
    class(crossdock_publisher), intent(inout) :: publisher
    character(*), intent(in) :: name
    real(real32), intent(in) :: value
    call put(publisher%values, '', name, value_r64(real(value, real64)))
  end subroutine

  subroutine set_text(publisher, name, value)
    class(crossdock_publisher), intent(inout) :: publisher
    character(*), intent(in) :: name, value
    call put(publisher%values, '', name, value_text(value))
  end subroutine

  !> Makes the C structs for a list of named values. `names` holds the texts to which the structs point.
  subroutine natives(list, of, names, entries)
    type(named_value), allocatable, intent(in) :: list(:)
    character(*), intent(in), optional :: of
    character(kind=c_char), allocatable, target, intent(inout) :: names(:, :)
    type(c_attribute), allocatable, target, intent(inout) :: entries(:)
    integer :: i, n, length
    n = 0
    if (allocated(list)) n = size(list)
    allocate (names(CROSSDOCK_NAME_MAX + 2, max(n, 1)), entries(max(n, 1)))
    names = c_null_char
    length = 0
    do i = 1, n
      if (present(of)) then
        if (list(i)%of /= of) cycle
      end if
      length = length + 1
      block
        integer :: m
        m = min(len(list(i)%name), CROSSDOCK_NAME_MAX + 1)
        names(1:m, length) = transfer(list(i)%name(1:m), names(1:m, length))
      end block
      entries(length)%name = c_loc(names(1, length))
      entries(length)%value = list(i)%value
    end do
    entries = entries(1:length)
  end subroutine

  !> The procedure that session%publisher calls: begins to publish a series.
  subroutine open_publisher(session, name, publisher, stat, keep, capacity, chunk, max_observers, full, detect, &
                            pages)
    type(c_ptr), intent(in) :: session
    character(*), intent(in) :: name
    type(crossdock_publisher), intent(inout) :: publisher
    integer, intent(out) :: stat
    integer, intent(in), optional :: keep, chunk, max_observers, full, detect, pages
    integer(int64), intent(in), optional :: capacity
    type(c_series_options) :: options
    type(c_variable), allocatable, target :: variables(:)
    type(c_attribute), allocatable, target :: declared_attributes(:)
    character(kind=c_char), allocatable, target :: attribute_names(:, :), texts(:, :)
    type :: constant_list
      character(kind=c_char), allocatable :: names(:, :)
      type(c_attribute), allocatable :: entries(:)
    end type
    type(constant_list), allocatable, target :: constants(:)
    type(c_ptr) :: reference
    integer :: i, n, m, rank
    if (allocated(publisher%mistake)) then
      call raise(stat, CROSSDOCK_INVALID, publisher%mistake)
      return
    end if
    if (present(keep)) options%keep = keep
    if (present(capacity)) options%capacity = capacity
    if (present(chunk)) options%chunk = chunk
    if (present(max_observers)) options%max_observers = max_observers
    if (present(full)) options%full = full
    if (present(detect)) options%detect = detect
    if (present(pages)) options%pages = pages
    n = 0
    if (allocated(publisher%variables)) n = size(publisher%variables)
    allocate (variables(max(n, 1)), constants(max(n, 1)), texts(CROSSDOCK_TYPE_NAME_MAX + 2, 2 * max(n, 1)))
    texts = c_null_char
    do i = 1, n
      associate (v => publisher%variables(i))
        m = min(len(v%name), CROSSDOCK_NAME_MAX + 1)
        texts(1:m, 2 * i - 1) = transfer(v%name(1:m), texts(1:m, 2 * i - 1))
        m = min(len(v%elements), CROSSDOCK_TYPE_NAME_MAX + 1)
        texts(1:m, 2 * i) = transfer(v%elements(1:m), texts(1:m, 2 * i))
        variables(i)%name = c_loc(texts(1, 2 * i - 1))
        variables(i)%type = c_loc(texts(1, 2 * i))
        rank = v%rank
        variables(i)%dimensions = rank
        variables(i)%shape(1:rank) = v%extents(rank:1:-1)
        variables(i)%max_shape(1:rank) = v%most(rank:1:-1)
        call natives(publisher%constants, v%name, constants(i)%names, constants(i)%entries)
        variables(i)%constant_count = size(constants(i)%entries)
        if (size(constants(i)%entries) > 0) variables(i)%constants = c_loc(constants(i)%entries)
      end associate
    end do
    call natives(publisher%attributes, names=attribute_names, entries=declared_attributes)
    stat = c_publisher_open(session, name // c_null_char, variables, int(n, c_size_t), declared_attributes, &
                            int(size(declared_attributes), c_size_t), options, reference)
    if (stat /= CROSSDOCK_OK) return
    if (c_associated(publisher%reference)) call publisher%free()
    publisher%reference = reference
  end subroutine

  subroutine publisher_publish(publisher, stat, sequence)
    class(crossdock_publisher), intent(in) :: publisher
    integer, intent(out) :: stat
    integer(int64), intent(out), optional :: sequence
    type(c_attribute), allocatable, target :: entries(:)
    character(kind=c_char), allocatable, target :: names(:, :)
    integer(c_int64_t) :: number
    call natives(publisher%values, names=names, entries=entries)
    number = 0
    stat = c_publisher_publish(publisher%reference, entries, int(size(entries), c_size_t), number)
    if (present(sequence)) sequence = number
  end subroutine

  subroutine publisher_begin(publisher, stat)
    class(crossdock_publisher), intent(in) :: publisher
    integer, intent(out) :: stat
    stat = c_publisher_begin(publisher%reference)
  end subroutine

  subroutine publisher_abandon(publisher, stat)
    class(crossdock_publisher), intent(in) :: publisher
    integer, intent(out) :: stat
    stat = c_publisher_abandon(publisher%reference)
  end subroutine

  subroutine resize_64(publisher, variable, shape, stat)
    class(crossdock_publisher), intent(inout) :: publisher
    character(*), intent(in) :: variable
    integer(int64), intent(in) :: shape(:)
    integer, intent(out) :: stat
    stat = c_publisher_resize(publisher%reference, variable // c_null_char, shape(size(shape):1:-1), &
                              int(size(shape), c_int32_t))
  end subroutine

  subroutine resize_32(publisher, variable, shape, stat)
    class(crossdock_publisher), intent(inout) :: publisher
    character(*), intent(in) :: variable
    integer(int32), intent(in) :: shape(:)
    integer, intent(out) :: stat
    call publisher%resize_64(variable, int(shape, int64), stat)
  end subroutine

  !> Tells the library that these bytes of a variable were written. Only CROSSDOCK_DETECT_HINTS needs such hints.
  subroutine publisher_touched(publisher, variable, from, bytes, stat)
    class(crossdock_publisher), intent(in) :: publisher
    character(*), intent(in) :: variable
    integer(int64), intent(in) :: from, bytes
    integer, intent(out) :: stat
    stat = c_publisher_touched(publisher%reference, variable // c_null_char, from, bytes)
  end subroutine

  subroutine publisher_statistics(publisher, statistics, stat)
    class(crossdock_publisher), intent(in) :: publisher
    type(crossdock_publisher_statistics), intent(out) :: statistics
    integer, intent(out) :: stat
    stat = c_publisher_statistics(publisher%reference, statistics)
  end subroutine

  !> Ends the series. No more versions come, and pointers stay valid until `free`.
  subroutine publisher_end(publisher, stat)
    class(crossdock_publisher), intent(in) :: publisher
    integer, intent(out) :: stat
    stat = c_publisher_end(publisher%reference)
  end subroutine

  subroutine publisher_free(publisher)
    class(crossdock_publisher), intent(inout) :: publisher
    integer :: ignored
    ignored = c_publisher_unref(publisher%reference)
    publisher%reference = c_null_ptr
  end subroutine

  subroutine publisher_locate(object, variable, elements, rank, address, extents, stat)
    class(crossdock_publisher), intent(in) :: object
    character(*), intent(in) :: variable, elements
    integer, intent(in) :: rank
    type(c_ptr), intent(out) :: address
    integer(c_int64_t), intent(out) :: extents(CROSSDOCK_RANK_MAX)
    integer, intent(out) :: stat
    integer(c_int64_t) :: bytes, lengths(CROSSDOCK_RANK_MAX)
    integer(c_int32_t) :: dimensions
    integer :: i
    extents = 0
    stat = c_publisher_memory(object%reference, variable // c_null_char, address, bytes)
    if (stat /= CROSSDOCK_OK) return
    do i = 1, size(object%variables)
      associate (v => object%variables(i))
        if (v%name /= variable) cycle
        call fits(variable, v%elements, v%rank, elements, rank, stat)
        if (stat /= CROSSDOCK_OK) return
        ! The shape is not always the declared one: crossdock_restart gives a variable the shape of the checkpoint.
        stat = c_publisher_shape(object%reference, variable // c_null_char, dimensions, lengths)
        if (stat == CROSSDOCK_OK) extents(1:rank) = lengths(rank:1:-1)
        return
      end associate
    end do
  end subroutine

  !> Checks that the variable has the type and the rank of the pointer.
  subroutine fits(variable, has, has_rank, wanted, wanted_rank, stat)
    character(*), intent(in) :: variable, has, wanted
    integer, intent(in) :: has_rank, wanted_rank
    integer, intent(inout) :: stat
    character(16) :: ranks
    if (has == wanted .and. has_rank == wanted_rank) return
    write (ranks, '(i0,a,i0)') has_rank, ', not ', wanted_rank
    if (has /= wanted) then
      call raise(stat, CROSSDOCK_WRONG_TYPE, 'variable ' // variable // ' is of type ' // has // ', not ' // wanted)
    else
      call raise(stat, CROSSDOCK_WRONG_TYPE, 'variable ' // variable // ' is of rank ' // trim(ranks))
    end if
  end subroutine

  ! ---------------------------------------------------------------- observer

  !> The procedure that session%observe calls: attaches to a series as an observer.
  subroutine open_observer(session, name, observer, stat, timeout_ms, former)
    type(c_ptr), intent(in) :: session
    character(*), intent(in) :: name
    type(crossdock_observer), intent(inout) :: observer
    integer, intent(out) :: stat
    integer(int64), intent(in) :: timeout_ms
    logical, intent(in), optional :: former
    type(c_ptr) :: reference
    logical :: also_former
    also_former = .false.
    if (present(former)) also_former = former
    if (also_former) then
      stat = c_observer_open_former(session, name // c_null_char, timeout_ms, reference)
    else
      stat = c_observer_open(session, name // c_null_char, timeout_ms, reference)
    end if
    if (stat /= CROSSDOCK_OK) return
    if (c_associated(observer%reference)) call observer%free()
    observer%reference = reference
  end subroutine

  !> Gets the newest version. If `version` contains an older version, the older version is given up.
  subroutine observer_latest(observer, version, stat)
    class(crossdock_observer), intent(in) :: observer
    type(crossdock_version), intent(inout) :: version
    integer, intent(out) :: stat
    type(c_ptr) :: reference
    stat = c_observer_latest(observer%reference, reference)
    if (stat == CROSSDOCK_OK) call take(version, reference)
  end subroutine

  subroutine observer_next(observer, version, stat, timeout_ms)
    class(crossdock_observer), intent(in) :: observer
    type(crossdock_version), intent(inout) :: version
    integer, intent(out) :: stat
    integer, intent(in), optional :: timeout_ms
    type(c_ptr) :: reference
    integer(c_int64_t) :: timeout
    timeout = CROSSDOCK_WAIT
    if (present(timeout_ms)) timeout = timeout_ms
    stat = c_observer_next(observer%reference, timeout, reference)
    if (stat == CROSSDOCK_OK) call take(version, reference)
  end subroutine

  !> Waits for the version that follows the one that this observer gave last.
  subroutine observer_each(observer, version, stat, timeout_ms)
    class(crossdock_observer), intent(in) :: observer
    type(crossdock_version), intent(inout) :: version
    integer, intent(out) :: stat
    integer, intent(in), optional :: timeout_ms
    type(c_ptr) :: reference
    integer(c_int64_t) :: timeout
    timeout = CROSSDOCK_WAIT
    if (present(timeout_ms)) timeout = timeout_ms
    stat = c_observer_each(observer%reference, timeout, reference)
    if (stat == CROSSDOCK_OK) call take(version, reference)
  end subroutine

  !> Gets the version with this number. Waits for the version only if timeout_ms is given.
  subroutine observer_at(observer, sequence, version, stat, timeout_ms)
    class(crossdock_observer), intent(in) :: observer
    integer(int64), intent(in) :: sequence
    type(crossdock_version), intent(inout) :: version
    integer, intent(out) :: stat
    integer, intent(in), optional :: timeout_ms
    type(c_ptr) :: reference
    integer(c_int64_t) :: timeout
    timeout = 0
    if (present(timeout_ms)) timeout = timeout_ms
    stat = c_observer_at(observer%reference, sequence, timeout, reference)
    if (stat == CROSSDOCK_OK) call take(version, reference)
  end subroutine

  subroutine take(version, reference)
    type(crossdock_version), intent(inout) :: version
    type(c_ptr), intent(in) :: reference
    call version%free()
    version%reference = reference
  end subroutine

  subroutine observer_state(observer, state, stat)
    class(crossdock_observer), intent(in) :: observer
    integer, intent(out) :: state, stat
    integer(c_int) :: found
    found = 0
    stat = c_observer_state(observer%reference, found)
    state = found
  end subroutine

  !> A number that identifies this incarnation of the series. When a publisher is restarted, its series gets another
  !> number.
  subroutine observer_id(observer, id, stat)
    class(crossdock_observer), intent(in) :: observer
    integer(int64), intent(out) :: id
    integer, intent(out) :: stat
    stat = c_observer_id(observer%reference, id)
  end subroutine

  subroutine known_i64(observer, variable, name, value, stat)
    class(crossdock_observer), intent(in) :: observer
    character(*), intent(in) :: variable, name
    integer(int64), intent(out) :: value
    integer, intent(out) :: stat
    type(c_value) :: found
    value = 0
    stat = c_observer_constant(observer%reference, variable // c_null_char, name // c_null_char, found)
    if (stat == CROSSDOCK_OK) call as_integer(found, name, value, stat)
  end subroutine

  subroutine known_i32(observer, variable, name, value, stat)
    class(crossdock_observer), intent(in) :: observer
    character(*), intent(in) :: variable, name
    integer(int32), intent(out) :: value
    integer, intent(out) :: stat
    integer(int64) :: wide
    call observer%known_i64(variable, name, wide, stat)
    call narrow(wide, name, value, stat)
  end subroutine

  subroutine known_r64(observer, variable, name, value, stat)
    class(crossdock_observer), intent(in) :: observer
    character(*), intent(in) :: variable, name
    real(real64), intent(out) :: value
    integer, intent(out) :: stat
    type(c_value) :: found
    value = 0
    stat = c_observer_constant(observer%reference, variable // c_null_char, name // c_null_char, found)
    if (stat == CROSSDOCK_OK) call of_kind(found, CROSSDOCK_VALUE_F64, name, stat)
    if (stat == CROSSDOCK_OK) value = transfer(found%number, value)
  end subroutine

  subroutine known_text(observer, variable, name, value, stat)
    class(crossdock_observer), intent(in) :: observer
    character(*), intent(in) :: variable, name
    character(:), allocatable, intent(out) :: value
    integer, intent(out) :: stat
    type(c_value) :: found
    stat = c_observer_constant(observer%reference, variable // c_null_char, name // c_null_char, found)
    if (stat == CROSSDOCK_OK) call as_text(found, name, value, stat)
  end subroutine

  subroutine observer_free(observer)
    class(crossdock_observer), intent(inout) :: observer
    integer :: ignored
    ignored = c_observer_unref(observer%reference)
    observer%reference = c_null_ptr
  end subroutine

  ! ----------------------------------------------------------------- version

  subroutine version_sequence(version, sequence, stat)
    class(crossdock_version), intent(in) :: version
    integer(int64), intent(out) :: sequence
    integer, intent(out) :: stat
    stat = c_version_sequence(version%reference, sequence)
  end subroutine

  !> The time at which the version was published, in nanoseconds since 1970.
  subroutine version_time(version, time_ns, stat)
    class(crossdock_version), intent(in) :: version
    integer(int64), intent(out) :: time_ns
    integer, intent(out) :: stat
    stat = c_version_time(version%reference, time_ns)
  end subroutine

  !> The number of versions that observer%each skipped just before this one, because they no longer existed.
  subroutine version_missed(version, missed, stat)
    class(crossdock_version), intent(in) :: version
    integer(int64), intent(out) :: missed
    integer, intent(out) :: stat
    missed = 0
    stat = c_version_missed(version%reference, missed)
  end subroutine

  subroutine version_valid(version, valid, stat)
    class(crossdock_version), intent(in) :: version
    logical, intent(out) :: valid
    integer, intent(out) :: stat
    integer(c_int) :: answer
    answer = 0
    stat = c_version_valid(version%reference, answer)
    valid = answer /= 0
  end subroutine

  subroutine version_shape(version, variable, shape, stat)
    class(crossdock_version), intent(in) :: version
    character(*), intent(in) :: variable
    integer(int64), allocatable, intent(out) :: shape(:)
    integer, intent(out) :: stat
    integer(c_int64_t) :: lengths(CROSSDOCK_RANK_MAX)
    integer(c_int32_t) :: rank
    stat = c_version_shape(version%reference, variable // c_null_char, rank, lengths)
    if (stat == CROSSDOCK_OK) shape = lengths(rank:1:-1)
  end subroutine

  subroutine attribute_i64(version, name, value, stat)
    class(crossdock_version), intent(in) :: version
    character(*), intent(in) :: name
    integer(int64), intent(out) :: value
    integer, intent(out) :: stat
    type(c_value) :: found
    value = 0
    stat = c_version_attribute(version%reference, name // c_null_char, found)
    if (stat == CROSSDOCK_OK) call as_integer(found, name, value, stat)
  end subroutine

  subroutine attribute_i32(version, name, value, stat)
    class(crossdock_version), intent(in) :: version
    character(*), intent(in) :: name
    integer(int32), intent(out) :: value
    integer, intent(out) :: stat
    integer(int64) :: wide
    call version%attribute_i64(name, wide, stat)
    call narrow(wide, name, value, stat)
  end subroutine

  subroutine attribute_r64(version, name, value, stat)
    class(crossdock_version), intent(in) :: version
    character(*), intent(in) :: name
    real(real64), intent(out) :: value
    integer, intent(out) :: stat
    type(c_value) :: found
    value = 0
    stat = c_version_attribute(version%reference, name // c_null_char, found)
    if (stat == CROSSDOCK_OK) call of_kind(found, CROSSDOCK_VALUE_F64, name, stat)
    if (stat == CROSSDOCK_OK) value = transfer(found%number, value)
  end subroutine

  subroutine attribute_text(version, name, value, stat)
    class(crossdock_version), intent(in) :: version
    character(*), intent(in) :: name
    character(:), allocatable, intent(out) :: value
    integer, intent(out) :: stat
    type(c_value) :: found
    stat = c_version_attribute(version%reference, name // c_null_char, found)
    if (stat == CROSSDOCK_OK) call as_text(found, name, value, stat)
  end subroutine

  !> Turns this variable into the newest version. Pointers from view stay valid and show the new version.
  subroutine version_refresh(version, stat, remapped)
    class(crossdock_version), intent(in) :: version
    integer, intent(out) :: stat
    integer(int64), intent(out), optional :: remapped
    integer(c_int64_t) :: chunks
    chunks = 0
    stat = c_version_refresh(version%reference, chunks)
    if (present(remapped)) remapped = chunks
  end subroutine

  !> The chunks in which this version differs from a later one, as ranges of bytes in variables, counted from 0.
  subroutine version_diff(version, after, changes, stat)
    class(crossdock_version), intent(in) :: version
    type(crossdock_version), intent(in) :: after
    type(crossdock_change), allocatable, intent(out) :: changes(:)
    integer, intent(out) :: stat
    integer(c_size_t) :: count, room
    count = 0
    allocate (changes(0))
    stat = c_version_diff(version%reference, after%reference, changes, 0_c_size_t, count)
    if (stat /= CROSSDOCK_OK) return
    deallocate (changes)
    room = count
    allocate (changes(room))
    stat = c_version_diff(version%reference, after%reference, changes, room, count)
  end subroutine

  subroutine version_free(version)
    class(crossdock_version), intent(inout) :: version
    integer :: ignored
    ignored = c_version_unref(version%reference)
    version%reference = c_null_ptr
  end subroutine

  subroutine version_locate(object, variable, elements, rank, address, extents, stat)
    class(crossdock_version), intent(in) :: object
    character(*), intent(in) :: variable, elements
    integer, intent(in) :: rank
    type(c_ptr), intent(out) :: address
    integer(c_int64_t), intent(out) :: extents(CROSSDOCK_RANK_MAX)
    integer, intent(out) :: stat
    type(c_variable_info) :: info
    integer(c_int64_t) :: bytes, lengths(CROSSDOCK_RANK_MAX)
    integer(c_int32_t) :: dimensions
    character(:), allocatable :: has
    integer :: n
    extents = 0
    address = c_null_ptr
    stat = c_version_variable(object%reference, variable // c_null_char, info)
    if (stat /= CROSSDOCK_OK) return
    n = findloc(info%type == c_null_char, .true., dim=1) - 1
    allocate (character(n) :: has)
    has = transfer(info%type(1:n), has)
    call fits(variable, has, int(info%dimensions), elements, rank, stat)
    if (stat /= CROSSDOCK_OK) return
    stat = c_version_shape(object%reference, variable // c_null_char, dimensions, lengths)
    if (stat /= CROSSDOCK_OK) return
    extents(1:rank) = lengths(rank:1:-1)
    stat = c_version_data(object%reference, variable // c_null_char, address, bytes)
  end subroutine

#define OF_VARIABLE
#define OBJECT crossdock_publisher
#define N0 p_r32_0
#define N1 p_r32_1
#define N2 p_r32_2
#define N3 p_r32_3
#define N4 p_r32_4
#define VALUE real(c_float)
#define ELEMENTS 'f32'
#include "views.inc"
#define N0 p_r64_0
#define N1 p_r64_1
#define N2 p_r64_2
#define N3 p_r64_3
#define N4 p_r64_4
#define VALUE real(c_double)
#define ELEMENTS 'f64'
#include "views.inc"
#define N0 p_i32_0
#define N1 p_i32_1
#define N2 p_i32_2
#define N3 p_i32_3
#define N4 p_i32_4
#define VALUE integer(c_int32_t)
#define ELEMENTS 'i32'
#include "views.inc"
#define N0 p_i64_0
#define N1 p_i64_1
#define N2 p_i64_2
#define N3 p_i64_3
#define N4 p_i64_4
#define VALUE integer(c_int64_t)
#define ELEMENTS 'i64'
#include "views.inc"
#undef OBJECT
#define OBJECT crossdock_version
#define N0 v_r32_0
#define N1 v_r32_1
#define N2 v_r32_2
#define N3 v_r32_3
#define N4 v_r32_4
#define VALUE real(c_float)
#define ELEMENTS 'f32'
#include "views.inc"
#define N0 v_r64_0
#define N1 v_r64_1
#define N2 v_r64_2
#define N3 v_r64_3
#define N4 v_r64_4
#define VALUE real(c_double)
#define ELEMENTS 'f64'
#include "views.inc"
#define N0 v_i32_0
#define N1 v_i32_1
#define N2 v_i32_2
#define N3 v_i32_3
#define N4 v_i32_4
#define VALUE integer(c_int32_t)
#define ELEMENTS 'i32'
#include "views.inc"
#define N0 v_i64_0
#define N1 v_i64_1
#define N2 v_i64_2
#define N3 v_i64_3
#define N4 v_i64_4
#define VALUE integer(c_int64_t)
#define ELEMENTS 'i64'
#include "views.inc"
end module
