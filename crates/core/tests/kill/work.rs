//! The work that a member of the kill tests does until it is killed at a fault point.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossdock_core::containers::Order;
use crossdock_core::directory::{ObjectMode, TypeRef};
use crossdock_core::region::Region;

use crate::common::World;
use crate::{FREEING, PEERS};

/// A list of the blocks that a member has allocated. The list lies in shared memory, so it is still there after the
/// member's death.
pub struct Ledger<'a> {
    pub world: &'a World,
    /// The index of the next free word of the list.
    pub next: usize,
}

impl Ledger<'_> {
    pub fn allocate(&mut self, region: &Arc<Region>, size: u64) -> usize {
        let block = region.allocate(size, 16).unwrap();
        self.world.word(self.next).store(block, Ordering::SeqCst);
        self.next += 1;
        self.next - 1
    }

    pub fn free(&self, region: &Arc<Region>, index: usize) {
        let word = self.world.word(index);
        self.world.word(FREEING).store(index as u64, Ordering::SeqCst);
        region.deallocate(word.load(Ordering::SeqCst)).unwrap();
        word.store(0, Ordering::SeqCst);
        self.world.word(FREEING).store(0, Ordering::SeqCst);
    }
}

/// The type of most objects in this test.
pub fn vector() -> TypeRef {
    TypeRef::new("vector<f64>").unwrap()
}

fn claim(region: &Arc<Region>, name: &str, ty: &TypeRef) -> u64 {
    let claim = region.claim(name, ty, ObjectMode::CreateOnly, None).unwrap();
    assert!(claim.created);
    claim.offset
}

/// Does everything that a member can do to a region, in an order that reaches every fault point.
pub fn work(world: &World, region: Arc<Region>) {
    let helper = world.again().attach(3);
    let mut ledger = Ledger { world, next: PEERS + 1 };
    // Allocates small and large blocks, so that the region grows.
    let mixed: Vec<usize> = (0..40).map(|i| ledger.allocate(&region, 20 + 37 * i)).collect();
    let large: Vec<usize> = [200_000, 3 << 20, 70_000].map(|size| ledger.allocate(&region, size)).into();
    // Frees blocks of the peer, in a slice that the peer has marked as full.
    ledger.free(&region, 1);
    ledger.free(&region, 2);
    // Fills a slice of this member. Then another member frees blocks in this slice, so this member finds free blocks in
    // it.
    let many: Vec<usize> = (0..1030).map(|_| ledger.allocate(&region, 64)).collect();
    ledger.free(&helper, many[3]);
    ledger.free(&helper, many[4]);
    let more: Vec<usize> = (0..1100).map(|_| ledger.allocate(&region, 64)).collect();
    for index in many.iter().skip(5).chain(&more).chain(&mixed).chain(&large) {
        ledger.free(&region, *index);
    }
    // Some slices of this member now have no block in use. When the member looks for free blocks in its slices the next
    // time, it returns these slices to the region's pool of free slices.
    let again: Vec<usize> = (0..1200).map(|_| ledger.allocate(&region, 64)).collect();
    for index in again {
        ledger.free(&region, index);
    }
    // Makes objects that are kept, abandoned and removed.
    claim(&region, "plain", &TypeRef::new("f64[100]").unwrap());
    let plain = region_claims(&region, "plain-2");
    region.commit(plain).unwrap();
    let gone = claim(&region, "gone", &vector());
    region.vector_resize(gone, 8, 50).unwrap();
    region.abandon(gone).unwrap();
    // Makes a vector that grows, first in small blocks and then in large blocks.
    let grown = claim(&region, "grown", &vector());
    region.commit(grown).unwrap();
    for n in [10u64, 100, 9_000, 20_000] {
        region.vector_resize(grown, 8, n).unwrap();
    }
    let array = claim(&region, "array", &TypeRef::new("ndarray<f32>").unwrap());
    region.commit(array).unwrap();
    region.ndarray_reshape(array, 4, Order::C, &[10, 20]).unwrap();
    region.ndarray_reshape(array, 4, Order::Fortran, &[20, 10]).unwrap();
    // Makes nested vectors. The elements of one of them are put into a block that was prepared before.
    let nested = claim(&region, "nested", &TypeRef::new("{i64,vector<vector<f64>>}").unwrap());
    region.commit(nested).unwrap();
    region.vector_resize(nested + 8, 32, 3).unwrap();
    let inner = element_of(&region, nested + 8);
    region.vector_resize(inner, 8, 30).unwrap();
    region.vector_resize(inner + 64, 8, 30).unwrap();
    let block = region.prepare(500, 64).unwrap();
    let field = inner + 32 + 8;
    region.replace(field, &[block.wrapping_sub(field), 5, 62], block, 0).unwrap();
    // The first call moves the elements of the outer vector. The second call removes elements that own blocks.
    region.vector_resize(nested + 8, 32, 40).unwrap();
    region.vector_resize(nested + 8, 32, 1).unwrap();
    region.remove("grown").unwrap();
    region.remove("nested").unwrap();
    region.remove("plain-2").unwrap();
    // Ends while prepared blocks and objects under construction exist. After this member's death, the member that heals
    // the region must free them.
    region.prepare(100, 16).unwrap();
    region.prepare(100_000, 16).unwrap();
    drop(helper);
    drop(region);
}

fn region_claims(region: &Arc<Region>, name: &str) -> u64 {
    claim(region, name, &TypeRef::new("f64[10000]").unwrap())
}

/// Gives the offset of the first element of the vector at `header`.
fn element_of(region: &Region, header: u64) -> u64 {
    // SAFETY: the call reads the data word of a header in this test's own region.
    let data = unsafe { region.base().add(header as usize + 8).cast::<u64>().read_volatile() };
    (header + 8).wrapping_add(data)
}
