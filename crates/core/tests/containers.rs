//! Tests of vectors and ndarrays: their growth, zeroed elements, shapes, and their removal together with the blocks
//! that they own.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::World;
use crossdock_core::containers::Order;
use crossdock_core::directory::{ObjectMode, TypeRef};
use crossdock_core::region::Region;
use crossdock_layout::Status;

fn make(region: &Arc<Region>, name: &str, of: &str) -> u64 {
    let ty = TypeRef::new(of).unwrap();
    let claim = region.claim(name, &ty, ObjectMode::CreateOnly, Some(Duration::ZERO)).unwrap();
    region.commit(claim.offset).unwrap();
    claim.offset
}

fn address(region: &Region, header: u64) -> u64 {
    // SAFETY: the call reads the data word of a header in this test's own region.
    (header + 8).wrapping_add(unsafe { region.base().add(header as usize + 8).cast::<u64>().read() })
}

fn words<const N: usize>(region: &Region, header: u64) -> [u64; N] {
    // SAFETY: the call reads a header of N words in this test's own region.
    unsafe { region.base().add(header as usize).cast::<[u64; N]>().read() }
}

#[test]
fn a_vector_whose_elements_have_no_size_is_refused() {
    let world = World::new(4 << 20);
    let region = world.attach(1);
    for of in ["vector<string[18446744073709551615]>", "vector<{u8,string[18446744073709551615]}>"] {
        let vector = make(&region, "v", of);
        let bystander = make(&region, "bystander", "vector<u64>");
        region.vector_resize(bystander, 8, 100).unwrap();
        let seen = words::<4>(&region, bystander);
        for n in [1, 100] {
            let error = region.vector_resize(vector, 64, n).unwrap_err();
            assert_eq!(error.status, Status::WrongType, "{of}: {error}");
        }
        assert_eq!(words::<4>(&region, bystander), seen);
        region.remove("v").unwrap();
        region.remove("bystander").unwrap();
    }
}

#[test]
fn a_vector_keeps_its_elements_when_it_grows_and_new_ones_are_zero() {
    let world = World::new(16 << 20);
    let region = world.attach(1);
    let header = make(&region, "v", "vector<u64>");
    let mut size = 0;
    for n in [3, 10, 9, 400, 100, 100_000, 5, 200_000, 0, 7] {
        region.vector_resize(header, 8, n).unwrap();
        let [own, _, length, capacity] = words(&region, header);
        assert_eq!((own, length), (header.wrapping_neg(), n));
        assert!(capacity >= n);
        let data = address(&region, header);
        assert_eq!(data % 64, 0);
        for i in 0..n {
            // SAFETY: the address is that of an element of the vector.
            let element = unsafe { &mut *region.base().add((data + 8 * i) as usize).cast::<u64>() };
            assert_eq!(*element, if i < size { i + 1 } else { 0 }, "{i} of {n}");
            *element = i + 1;
        }
        size = n;
    }
    region.vector_reserve(header, 8, 1000).unwrap();
    assert_eq!(words::<4>(&region, header)[2], 7);
    region.remove("v").unwrap();
    assert_eq!(region.statistics().used, 0);
}

/// Tests that a call with a wrong element size fails if the type in the directory entry gives the right size. If the
/// call accepted the wrong size, the container's header would say that the block has room for more elements than it
/// has.
#[test]
fn a_wrong_element_size_is_an_error_and_changes_nothing() {
    let world = World::new(16 << 20);
    let region = world.attach(1);
    let vector = make(&region, "v", "vector<u64>");
    let text = make(&region, "text", "string");
    let array = make(&region, "a", "ndarray<f64>");
    let both = make(&region, "both", "{i32,vector<f64>,ndarray<f32>[2]}");
    let many = make(&region, "many", "vector<f32>[1000]");
    let opaque = TypeRef { name: "cpp:Particles".into(), size: 32, align: 8 };
    let untold = region.claim("untold", &opaque, ObjectMode::CreateOnly, Some(Duration::ZERO)).unwrap().offset;
    region.commit(untold).unwrap();
    region.vector_resize(vector, 8, 8).unwrap();
    let before = words::<4>(&region, vector);
    let refused = |result: crossdock_core::Result<()>| {
        let error = result.unwrap_err();
        assert_eq!(error.status, Status::WrongType, "{error}");
        error.to_string()
    };
    let said = refused(region.vector_resize(vector, 4, 16));
    assert!(said.contains("'v'") && said.contains("vector<u64>") && said.contains("elements of 4 bytes"), "{said}");
    refused(region.vector_resize(vector, 4, 3));
    refused(region.vector_reserve(vector, 16, 1000));
    refused(region.vector_resize(text, 4, 10));
    refused(region.ndarray_reshape(array, 4, Order::C, &[3]));
    refused(region.vector_resize(array, 8, 10));
    refused(region.ndarray_reshape(vector, 8, Order::C, &[3]));
    refused(region.vector_resize(both + 8, 4, 10));
    refused(region.ndarray_reshape(both + 40 + 128, 8, Order::C, &[3]));
    refused(region.vector_resize(many + 32 * 500, 8, 10));
    assert_eq!(words::<4>(&region, vector), before);
    region.vector_resize(vector, 8, 16).unwrap();
    region.vector_resize(text, 1, 10).unwrap();
    region.ndarray_reshape(array, 8, Order::C, &[3]).unwrap();
    region.vector_resize(both + 8, 8, 10).unwrap();
    region.ndarray_reshape(both + 40 + 128, 4, Order::C, &[3]).unwrap();
    region.vector_resize(many + 32 * 500, 4, 10).unwrap();
    region.vector_resize(untold, 24, 10).unwrap();
}

/// Tests that the element size is also checked for containers inside of containers. The header of such a container lies
/// in a block without a name, or more than 64 KiB behind the beginning of a named object.
#[test]
fn a_wrong_element_size_inside_of_a_container_is_an_error_and_changes_nothing() {
    let world = World::new(64 << 20);
    let region = world.attach(1);
    let refused = |result: crossdock_core::Result<()>, name: &str| {
        let error = result.expect_err("the size is wrong");
        assert_eq!(error.status, Status::WrongType, "{error}");
        assert!(error.to_string().contains(name), "{error}");
    };
    // This object has no nested containers, so the search for a container's object skips it.
    let flat = make(&region, "flat", "vector<f64>");
    region.vector_resize(flat, 8, 100).unwrap();
    let tree = make(&region, "tree", "{i32,vector<{vector<f64>,string,ndarray<f32>}>[2]}");
    let deep = make(&region, "deep", "vector<vector<vector<u16>>>");
    for list in [tree + 8, tree + 40] {
        region.vector_resize(list, 192, 700).unwrap();
        let last = address(&region, list) + 192 * 699;
        for (inner, size, wrong) in [(last, 8, 4), (last + 32, 1, 2)] {
            refused(region.vector_resize(inner, wrong, 10), "'tree'");
            region.vector_resize(inner, size, 10).unwrap();
            let before = words::<4>(&region, inner);
            refused(region.vector_resize(inner, wrong, 1000), "'tree'");
            refused(region.vector_reserve(inner, wrong, 1000), "'tree'");
            refused(region.vector_resize(inner, wrong, 11), "'tree'");
            refused(region.ndarray_reshape(inner, size, Order::C, &[3]), "'tree'");
            assert_eq!(words::<4>(&region, inner), before);
            region.vector_resize(inner, size, 1000).unwrap();
        }
        refused(region.ndarray_reshape(last + 64, 8, Order::C, &[3]), "'tree'");
        region.ndarray_reshape(last + 64, 4, Order::C, &[3]).unwrap();
        refused(region.vector_resize(last + 64, 4, 10), "'tree'");
    }
    region.vector_resize(deep, 32, 3).unwrap();
    let middle = address(&region, deep) + 64;
    refused(region.vector_resize(middle, 8, 5), "'deep'");
    region.vector_resize(middle, 32, 5).unwrap();
    let inner = address(&region, middle) + 32;
    refused(region.vector_resize(inner, 1, 100), "'deep'");
    region.vector_resize(inner, 2, 100).unwrap();
    let many = make(&region, "many", "vector<f32>[10000]");
    refused(region.vector_resize(many + 32 * 9999, 2, 10), "'many'");
    region.vector_resize(many + 32 * 9999, 4, 10).unwrap();
    // A block that the program itself allocated has no type. So the call accepts any element size.
    let own = region.allocate(64, 8).unwrap();
    // SAFETY: the write stays within the block that this test allocated.
    unsafe { region.base().add(own as usize).write_bytes(0, 64) };
    region.vector_resize(own, 24, 10).unwrap();
}

/// Tests that the search for a container's object ends even if pointers of damaged containers form a circle.
#[test]
fn a_circle_of_damaged_containers_ends_the_search() {
    let world = World::new(16 << 20);
    let region = world.attach(1);
    let deep = make(&region, "deep", "vector<vector<vector<vector<vector<vector<u8>>>>>>");
    region.vector_resize(deep, 32, 2000).unwrap();
    let data = address(&region, deep);
    for element in 0..2000 {
        let header = data + 32 * element;
        let words = [header.wrapping_neg(), data.wrapping_sub(header + 8), 2000, 2000];
        // SAFETY: the address is that of an element of the vector.
        unsafe { region.base().add(header as usize).cast::<[u64; 4]>().write(words) };
    }
    let own = region.allocate(64, 8).unwrap();
    // SAFETY: the write stays within the block that this test allocated.
    unsafe { region.base().add(own as usize).write_bytes(0, 64) };
    let began = std::time::Instant::now();
    region.vector_resize(own, 24, 10).unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn an_ndarray_takes_a_shape_and_keeps_its_bytes() {
    let world = World::new(16 << 20);
    let region = world.attach(1);
    let header = make(&region, "a", "ndarray<f32>");
    region.ndarray_reshape(header, 4, Order::Fortran, &[10, 20, 3]).unwrap();
    let [own, _, bytes, rank_and_order, a, b, c, d, ..] = words::<16>(&region, header);
    assert_eq!((own, a, b, c, d), (header.wrapping_neg(), 10, 20, 3, 0));
    assert_eq!((rank_and_order & 0xffff_ffff, rank_and_order >> 32), (3, 1));
    assert!(bytes >= 2400);
    let data = address(&region, header);
    // SAFETY: the range is the array's own bytes.
    unsafe { region.base().add(data as usize).write_bytes(7, 2400) };
    region.ndarray_reshape(header, 4, Order::C, &[100, 100]).unwrap();
    let data = address(&region, header);
    // SAFETY: the range is the array's own bytes.
    let all = unsafe { std::slice::from_raw_parts(region.base().add(data as usize), 40_000) };
    assert!(all[..2400].iter().all(|b| *b == 7) && all[2400..].iter().all(|b| *b == 0));
    let status = |shape: &[u64]| region.ndarray_reshape(header, 4, Order::C, shape).unwrap_err().status;
    assert_eq!(status(&[1; 9]), Status::Invalid);
    assert_eq!(status(&[u64::MAX, 3]), Status::Invalid);
    assert_eq!(status(&[1 << 40]), Status::NoSpace);
    region.remove("a").unwrap();
    assert_eq!(region.statistics().used, 0);
}

#[test]
fn removal_frees_what_nested_containers_own() {
    let world = World::new(16 << 20);
    let region = world.attach(1);
    let header = make(&region, "tree", "{i32,vector<{vector<f64>,string}>[2]}");
    for outer in 0..2 {
        let list = header + 8 + 32 * outer;
        region.vector_resize(list, 64, 5).unwrap();
        let data = address(&region, list);
        for element in 0..5 {
            region.vector_resize(data + 64 * element, 8, 10 + 3000 * element).unwrap();
            region.vector_resize(data + 64 * element + 32, 1, 5).unwrap();
        }
    }
    assert_eq!(region.statistics().blocks, 1 + 2 + 20);
    let removed = region.remove("tree").unwrap();
    assert_eq!(removed.blocks, 23);
    assert_eq!(region.statistics().used, 0);
}

/// Makes the string or vector of bytes at `header` have these bytes.
fn assign(region: &Arc<Region>, header: u64, text: &[u8]) {
    region.vector_resize(header, 1, text.len() as u64).unwrap();
    // SAFETY: the bytes that are overwritten are those of the string or vector at `header`, which is as long as `text`.
    unsafe { region.base().add(address(region, header) as usize).copy_from(text.as_ptr(), text.len()) };
}

/// The bytes of the string or vector of bytes at `header`.
fn text(region: &Arc<Region>, header: u64) -> Vec<u8> {
    let found = region.vector_at(header, 1).unwrap();
    let start = found.data.map_or(region.base().cast_const(), |at| region.base().wrapping_add(at as usize));
    // SAFETY: `vector_at` checked that the bytes lie in the region.
    unsafe { std::slice::from_raw_parts(start, found.size as usize) }.to_vec()
}

/// Makes a text of 64 bytes that is different for each element number.
fn line(i: u64) -> [u8; 64] {
    [b'A' + i as u8; 64]
}

/// If elements of a vector own containers, these containers keep their contents when the vector grows and its elements
/// move, and are freed when the vector shrinks. Blocks of other objects lie before and after the blocks of the
/// elements.
#[test]
fn containers_in_a_container_keep_their_contents_when_it_grows_and_are_freed_when_it_shrinks() {
    let world = World::new(16 << 20);
    let region = world.attach(1);
    let names = make(&region, "names", "vector<string>");
    let bystanders = |n: u64| (0..n).map(|_| region.allocate(64, 64).unwrap()).collect::<Vec<_>>();
    let mut others = bystanders(500);
    region.vector_resize(names, 32, 4).unwrap();
    for i in 0..4 {
        assign(&region, address(&region, names) + 32 * i, &line(i));
    }
    others.extend(bystanders(500));
    let before = address(&region, names);
    for (n, reserve) in [(40, false), (1000, true), (40, false), (5000, false)] {
        let change = if reserve { Region::vector_reserve } else { Region::vector_resize };
        change(&region, names, 32, n).unwrap();
        let data = address(&region, names);
        assert!((0..4).all(|i| text(&region, data + 32 * i) == line(i)), "{n}");
        assert_eq!(words::<4>(&region, data + 32)[0], (data + 32).wrapping_neg());
        assert!(text(&region, data + 32 * 5).is_empty());
    }
    assert_ne!(address(&region, names), before);
    assert_eq!(region.statistics().blocks, 2 + 4 + 1000);
    region.vector_resize(names, 32, 3).unwrap();
    assert_eq!(region.statistics().blocks, 2 + 3 + 1000);
    region.vector_resize(names, 32, 4).unwrap();
    assert!(text(&region, address(&region, names) + 96).is_empty());
    region.remove("names").unwrap();
    others.iter().for_each(|other| region.deallocate(*other).unwrap());
    assert_eq!(region.statistics().used, 0);
}

#[test]
fn containers_at_any_place_in_an_element_keep_their_contents_when_it_moves() {
    let world = World::new(64 << 20);
    let region = world.attach(1);
    // In each element, a string is at the offset 8, an ndarray at 40, and two vectors of vectors at 168.
    let ty = TypeRef::new("{f64,vector<{i64,string,ndarray<f32>,vector<vector<u8>>[2]}>}").unwrap();
    let tree = region.claim("tree", &ty, ObjectMode::CreateOnly, Some(Duration::ZERO)).unwrap().offset;
    let list = tree + 8;
    let fill = |element: u64| {
        assign(&region, element + 8, &line(1));
        region.ndarray_reshape(element + 40, 4, Order::C, &[3, 5]).unwrap();
        for rows in [element + 168, element + 200] {
            region.vector_resize(rows, 32, 2).unwrap();
            assign(&region, address(&region, rows) + 32, &line(2));
            // This call moves the elements of the vector of vectors, too.
            region.vector_resize(rows, 32, 20).unwrap();
        }
    };
    let check = |element: u64| {
        assert_eq!(text(&region, element + 8), line(1));
        let array = region.ndarray_at(element + 40, 4).unwrap();
        assert_eq!((array.shape(), region.block_size(array.data.unwrap()).unwrap()), (&[3, 5][..], array.capacity));
        for rows in [element + 168, element + 200] {
            assert_eq!(text(&region, address(&region, rows) + 32), line(2));
        }
    };
    // The object is still under construction, so its type is not in the directory; only this process knows it.
    region.vector_resize(list, 232, 2).unwrap();
    fill(address(&region, list) + 232);
    region.vector_resize(list, 232, 30).unwrap();
    check(address(&region, list) + 232);
    region.commit(tree).unwrap();
    fill(address(&region, list) + 232 * 29);
    region.vector_resize(list, 232, 3000).unwrap();
    check(address(&region, list) + 232);
    check(address(&region, list) + 232 * 29);
    assert_eq!(region.statistics().blocks, 2 + 2 * 6);
    region.vector_resize(list, 232, 29).unwrap();
    assert_eq!(region.statistics().blocks, 2 + 6);
    region.remove("tree").unwrap();
    assert_eq!(region.statistics().used, 0);
}

#[test]
fn strings_in_an_ndarray_keep_their_contents_when_it_grows_and_are_freed_with_it() {
    let world = World::new(16 << 20);
    let region = world.attach(1);
    let header = make(&region, "grid", "ndarray<string>");
    region.ndarray_reshape(header, 32, Order::C, &[2, 2]).unwrap();
    for i in 0..4 {
        assign(&region, address(&region, header) + 32 * i, &line(i));
    }
    region.ndarray_reshape(header, 32, Order::C, &[50, 10]).unwrap();
    assert!((0..4).all(|i| text(&region, address(&region, header) + 32 * i) == line(i)));
    region.ndarray_reshape(header, 32, Order::Fortran, &[3]).unwrap();
    assert_eq!(region.statistics().blocks, 2 + 3);
    region.remove("grid").unwrap();
    assert_eq!(region.statistics().used, 0);
}

/// To move a container, the library must find its type. It must find the type even if the search has to look at many
/// other containers first.
#[test]
fn containers_behind_many_others_keep_their_contents_when_they_move() {
    const ROWS: u64 = 5000;
    let world = World::new(64 << 20);
    let region = world.attach(1);
    let rows = make(&region, "rows", "vector<vector<vector<string>>>");
    region.vector_resize(rows, 32, ROWS).unwrap();
    let row = address(&region, rows) + 32 * (ROWS - 1);
    region.vector_resize(row, 32, 1).unwrap();
    let cell = address(&region, row);
    region.vector_resize(cell, 32, 1).unwrap();
    assign(&region, address(&region, cell), &line(3));
    region.vector_resize(cell, 32, 100).unwrap();
    assert_eq!(text(&region, address(&region, cell)), line(3));
    region.vector_resize(cell, 32, 0).unwrap();
    assert_eq!(region.statistics().blocks, 1 + 3);
    region.remove("rows").unwrap();
    assert_eq!(region.statistics().used, 0);
}

#[test]
fn a_damaged_header_is_corrupt_and_never_an_offset_or_a_length() {
    let world = World::new(16 << 20);
    let region = world.attach(1);
    let vector = make(&region, "v", "vector<u64>");
    let array = make(&region, "a", "ndarray<f32>");
    assert_eq!(region.ndarray_at(array, 4).unwrap().shape(), [0; 0]);
    region.vector_resize(vector, 8, 100).unwrap();
    region.ndarray_reshape(array, 4, Order::Fortran, &[10, 3]).unwrap();
    let found = region.ndarray_at(array, 4).unwrap();
    assert_eq!((found.shape(), found.bytes, found.order), (&[10, 3][..], 120, Order::Fortran));
    let capacity = region.vector_at(vector, 8).unwrap().capacity;
    let damages = [
        (vector, 1, 0),                         // no address, although there are elements
        (vector, 1, 1 << 40),                   // far outside of the region
        (vector, 1, vector.wrapping_neg() - 8), // the address of the region's own header
        (vector, 1, 4),                         // an offset at which no elements can begin
        (vector, 2, capacity + 1),              // more than there is room for
        (vector, 3, u64::MAX),                  // the number of bytes overflows
        (vector, 3, 1 << 30),                   // room beyond the region
        (array, 1, 0),
        (array, 1, (1 << 40) + 24),
        (array, 2, 100),         // less room than the shape takes
        (array, 3, 9 | 1 << 32), // a rank above 8
        (array, 3, 2 | 2 << 32), // no valid order
        (array, 4, u64::MAX),    // the product of the extents overflows
    ];
    for (header, word, value) in damages {
        // SAFETY: the word lies in a header in this test's own region, and no other code uses it now.
        let word = unsafe { &mut *region.base().add(header as usize + 8 * word).cast::<u64>() };
        let good = std::mem::replace(word, value);
        let read = if header == vector {
            region.vector_at(vector, 8).map(drop)
        } else {
            region.ndarray_at(array, 4).map(drop)
        };
        assert_eq!(read.unwrap_err().status, Status::Corrupt, "word {value:#x}");
        let changed = if header == vector {
            region.vector_resize(vector, 8, 5)
        } else {
            region.ndarray_reshape(array, 4, Order::C, &[5])
        };
        assert!(changed.is_err(), "word {value:#x}");
        *word = good;
    }
    assert_eq!(region.vector_at(12, 8).unwrap_err().status, Status::BadHandle);
    assert_eq!(region.vector_at(1 << 40, 8).unwrap_err().status, Status::BadHandle);
    assert!(region.vector_at(vector, 8).is_ok() && region.ndarray_at(array, 4).is_ok());
}
