//! The C functions for items.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Mutex;

use crossdock_client::{
    Contents, Error, Item, ItemInfo, ItemOptions, ItemView, Mode, Region, Result, SegmentKind, SharedItem, Status,
    address,
};

use crate::arguments::{choice, copy_text, optional_wait, out, read, text};
use crate::error::{call, invalid};
use crate::guarded::Guarded;
use crate::plain;
use crate::references::Table;
use crate::session::session;

static ITEMS: Table<Guarded<Mutex<State>>> = Table::new(9, "item", Status::Closed);

/// The kind of item to which a reference refers at present.
enum State {
    /// An item that this task owns. After the task has handed the item on, the item is spent: its calls fail with an
    /// error that says so.
    Own(Item),
    /// An item that this task owns and shares.
    Shared(SharedItem),
    /// An item of another task that this process reads.
    Read(ItemView),
    /// Another thread is ending the sharing of the item. Until it has finished, that thread has the item, and only the
    /// item's key is here.
    Moving(String),
}

impl State {
    fn key(&self) -> &str {
        match self {
            Self::Own(item) => item.key(),
            Self::Shared(shared) => shared.key(),
            Self::Read(view) => view.key(),
            Self::Moving(key) => key,
        }
    }

    fn moving(key: &str) -> Error {
        Error::new(Status::Busy, format!("another thread ends the sharing of item '{key}'; use the item afterwards"))
    }

    /// Gives the item, if this task can change it and hand it on; otherwise an error.
    fn owned(&mut self) -> Result<&mut Item> {
        match self {
            Self::Own(item) => item.check_open().map(|()| item),
            Self::Shared(shared) => {
                let text = format!("item '{}' is shared; crossdock_item_unshare it first", shared.key());
                Err(Error::new(Status::Busy, text))
            }
            Self::Read(view) => Err(Error::read_only().about(SegmentKind::Item, view.key())),
            Self::Moving(key) => Err(Self::moving(key)),
        }
    }

    fn place(&self) -> Result<(*mut u8, u64)> {
        match self {
            Self::Own(item) => item.check_open().map(|()| (item.base(), item.size())),
            Self::Shared(shared) => shared.view().map(|view| (view.base().cast_mut(), view.size())),
            Self::Read(view) => Ok((view.base().cast_mut(), view.size())),
            Self::Moving(key) => Err(Self::moving(key)),
        }
    }

    fn contents(&self) -> Result<Contents> {
        match self {
            Self::Own(item) => item.contents(),
            Self::Shared(shared) => shared.view()?.contents(),
            Self::Read(view) => view.contents(),
            Self::Moving(key) => Err(Self::moving(key)),
        }
    }
}

/// Applies `work` to the item of a reference.
fn with<R>(reference: u64, work: impl FnOnce(&mut State) -> Result<R>) -> Result<R> {
    let held = ITEMS.hold(reference)?;
    let mut state = held.lock()?;
    work(&mut state)
}

fn keep(state: State) -> Result<u64> {
    ITEMS.insert(Guarded::new(state, "item"))
}

/// Reads the options of a new item. NULL means the default options.
///
/// # Safety
/// `options` must be NULL or readable.
unsafe fn item_options(size: u64, options: *const plain::ItemOptions) -> Result<ItemOptions> {
    let mut result = ItemOptions::bytes(size);
    if options.is_null() {
        return Ok(result);
    }
    // SAFETY: the caller promises that `options`, which is not NULL here, is readable.
    let given = unsafe { read(options, "options")? };
    if given.level != 0 {
        result.level = choice(given.level, "level", "crossdock_item_level")?;
    }
    if given.on_death != 0 {
        result.on_death = choice(given.on_death, "policy", "crossdock_item_policy")?;
    }
    Ok(result)
}

fn padded(text: &str) -> [u8; 128] {
    let mut bytes = [0; 128];
    let length = text.len().min(127);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    bytes
}

fn info_out(info: &ItemInfo) -> plain::ItemInfo {
    plain::ItemInfo {
        key: padded(&info.key),
        owner: padded(&address(&info.owner)),
        creator: padded(&address(&info.creator)),
        size: info.size,
        since_ms: info.since_ms,
        transfers: info.transfers,
        copies: info.copies,
        state: info.state as u32,
        level: info.level as u32,
        on_death: info.on_death as u32,
        readers: info.readers,
        waiting: info.waiting,
        mine: u32::from(info.mine),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_item_create(
    session: u64,
    key: *const c_char,
    size: u64,
    options: *const plain::ItemOptions,
    item: *mut u64,
) -> i32 {
    call(|| {
        let item = out(item, "item")?;
        // SAFETY: `crossdock.h` requires zero-terminated text, and NULL or valid options.
        let (key, options) = unsafe { (text(key, "key")?, item_options(size, options)?) };
        let made = self::session(session)?.create_item(key, &options)?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { item.set(keep(State::Own(made))?) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_item_find(session: u64, key: *const c_char, info: *mut plain::ItemInfo) -> i32 {
    call(|| {
        let info = out(info, "info")?;
        // SAFETY: `crossdock.h` requires zero-terminated text.
        let key = unsafe { text(key, "key")? };
        let found = self::session(session)?.find_item(key)?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { info.set(info_out(&found)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_item_access(session: u64, key: *const c_char, timeout_ms: i64, item: *mut u64) -> i32 {
    call(|| {
        let item = out(item, "item")?;
        // SAFETY: `crossdock.h` requires zero-terminated text.
        let key = unsafe { text(key, "key")? };
        // The call waits on a clone of the session and does not hold the program's reference. Otherwise another thread
        // could not end the wait by closing the session.
        let session = self::session(session)?.clone();
        let got = session.access_item(key, optional_wait(timeout_ms)?)?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { item.set(keep(State::Own(got))?) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_item_access_any(
    session: u64,
    keys: *const *const c_char,
    count: usize,
    timeout_ms: i64,
    index: *mut usize,
    item: *mut u64,
) -> i32 {
    call(|| {
        let (index, item) = (out(index, "index")?, out(item, "item")?);
        if count > 0 && (keys.is_null() || !keys.is_aligned()) {
            return Err(invalid("the keys are NULL or misaligned"));
        }
        // Not more than 1024 keys are read, because a longer list is refused below.
        let count = count.min(1024);
        // SAFETY: `crossdock.h` requires `count` pointers to zero-terminated text.
        let keys = (0..count).map(|n| unsafe { text(*keys.add(n), "key") }).collect::<Result<Vec<&str>>>()?;
        let session = self::session(session)?.clone();
        let got = session.access_any_item(&keys, optional_wait(timeout_ms)?)?;
        let which = keys.iter().position(|key| *key == got.key()).unwrap_or(0);
        // SAFETY: `crossdock.h` requires writable places.
        unsafe {
            item.set(keep(State::Own(got))?);
            index.set(which);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_item_read(session: u64, key: *const c_char, timeout_ms: i64, item: *mut u64) -> i32 {
    call(|| {
        let item = out(item, "item")?;
        // SAFETY: `crossdock.h` requires zero-terminated text.
        let key = unsafe { text(key, "key")? };
        let session = self::session(session)?.clone();
        let view = session.read_item(key, optional_wait(timeout_ms)?)?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { item.set(keep(State::Read(view))?) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_session_register_number(session: u64, number: u64) -> i32 {
    call(|| self::session(session)?.register_number(number))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_item_transfer(item: u64, to: *const c_char) -> i32 {
    call(|| {
        // SAFETY: `crossdock.h` requires zero-terminated text.
        let to = unsafe { text(to, "task to transfer to")? };
        with(item, |state| state.owned()?.transfer_mut(to))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_item_copy(item: u64, key: *const c_char, copy: *mut u64) -> i32 {
    call(|| {
        let copy = out(copy, "copy")?;
        // SAFETY: `crossdock.h` requires zero-terminated text.
        let key = unsafe { text(key, "key")? };
        let made = with(item, |state| state.owned()?.copy(key))?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { copy.set(keep(State::Own(made))?) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_item_destroy(item: u64) -> i32 {
    call(|| with(item, |state| state.owned()?.destroy_mut()))
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_item_share(item: u64) -> i32 {
    call(|| {
        with(item, |state| {
            let shared = state.owned()?.share_mut()?;
            *state = State::Shared(shared);
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_item_unshare(item: u64, timeout_ms: i64) -> i32 {
    call(|| {
        let wait = optional_wait(timeout_ms)?;
        // This thread does not hold the lock during the wait, so calls of other threads do not have to wait.
        let held = ITEMS.hold(item)?;
        let mut shared = {
            let mut state = held.lock()?;
            let moving = State::Moving(state.key().to_owned());
            match std::mem::replace(&mut *state, moving) {
                State::Shared(shared) => shared,
                other => {
                    *state = other;
                    let item = state.owned()?;
                    return Err(invalid(format!("item '{}' is not shared", item.key())));
                }
            }
        };
        let (state, done) = match shared.unshare_mut(wait) {
            Ok(own) => (State::Own(own), Ok(())),
            Err(e) => (State::Shared(shared), Err(e)),
        };
        *held.lock()? = state;
        done
    })
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_item_resize(item: u64, size: u64) -> i32 {
    call(|| with(item, |state| state.owned()?.resize(size)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_item_data(item: u64, data: *mut *mut c_void, size: *mut u64) -> i32 {
    call(|| {
        let (data, size) = (out(data, "address")?, out(size, "size")?);
        let (base, bytes) = with(item, |state| state.place())?;
        // SAFETY: `crossdock.h` requires writable places.
        unsafe {
            data.set(base.cast());
            size.set(bytes);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_item_writable(item: u64, writable: *mut c_int) -> i32 {
    call(|| {
        let writable = out(writable, "answer")?;
        let answer = with(item, |state| state.place().map(|_| matches!(state, State::Own(_))))?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { writable.set(c_int::from(answer)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_item_key(item: u64, buffer: *mut c_char, buffer_size: usize) -> i32 {
    call(|| {
        let key = with(item, |state| Ok(state.key().to_owned()))?;
        // SAFETY: `crossdock.h` requires `buffer_size` writable bytes.
        unsafe { copy_text(&key, buffer, buffer_size) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_item_set_array(
    item: u64,
    element_type: *const c_char,
    order: u32,
    rank: u32,
    shape: *const u64,
) -> i32 {
    call(|| {
        // SAFETY: `crossdock.h` requires zero-terminated text, and for `rank` lengths at `shape`.
        let (ty, shape) = unsafe { (text(element_type, "element type")?, crate::container::shape_in(rank, shape)?) };
        let order = crate::container::order(order)?;
        let contents = Contents::Array { ty: ty.to_owned(), shape: shape.to_vec(), order };
        with(item, |state| state.owned()?.describe(&contents))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_item_array(
    item: u64,
    element_type: *mut c_char,
    element_type_size: usize,
    order: *mut u32,
    rank: *mut u32,
    shape: *mut u64,
) -> i32 {
    call(|| {
        let (order, rank) = (out(order, "order")?, out(rank, "rank")?);
        out(shape, "shape")?;
        let (contents, key) = with(item, |state| Ok((state.contents()?, state.key().to_owned())))?;
        let Contents::Array { ty, shape: extents, order: its_order } = contents else {
            return Err(Error::new(Status::WrongType, format!("item '{key}' holds no array")));
        };
        // SAFETY: `crossdock.h` requires writable places, and room for 8 extents, because no array has a higher rank.
        unsafe {
            copy_text(&ty, element_type, element_type_size)?;
            shape.copy_from_nonoverlapping(extents.as_ptr(), extents.len());
            order.set(its_order as u32);
            rank.set(extents.len() as u32);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn crossdock_item_region(item: u64, mode: u32, region: *mut u64) -> i32 {
    call(|| {
        let region = out(region, "region")?;
        let mode = crate::region::mode(mode)?;
        let found = with(item, |state| heap(state, mode))?;
        // SAFETY: `crossdock.h` requires writable memory.
        unsafe { region.set(crate::region::refer(found)?) };
        Ok(())
    })
}

fn heap(state: &mut State, mode: Mode) -> Result<Region> {
    match (mode, &mut *state) {
        (Mode::OpenOnly, State::Read(view)) => view.region(),
        (Mode::OpenOnly, State::Shared(shared)) => shared.region(),
        _ => state.owned()?.open_region(mode),
    }
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_item_ref(item: u64) -> i32 {
    call(|| ITEMS.add(item))
}

#[unsafe(no_mangle)]
extern "C" fn crossdock_item_unref(item: u64) -> i32 {
    call(|| ITEMS.remove(item))
}
