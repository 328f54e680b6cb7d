//! Compares the heap and the directory with a model, for random sequences of calls by two members.

mod common;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use common::World;
use crossdock_core::directory::{ObjectMode, TypeRef};
use crossdock_layout::Status;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Call {
    Allocate { member: usize, size: u64, align: u64 },
    Free { member: usize, which: usize },
    FreeAgain { member: usize, which: usize },
    Make { member: usize, name: u8, length: u64 },
    Remove { member: usize, name: u8 },
    Leave { member: usize },
    Heal { member: usize },
}

fn call() -> impl Strategy<Value = Call> {
    let member = 0..2usize;
    let size = prop_oneof![6 => 1..2000u64, 2 => 2000..40_000u64, 1 => 40_000..300_000u64];
    let align = prop_oneof![3 => Just(16u64), 1 => Just(64), 1 => Just(1), 1 => Just(4096)];
    prop_oneof![
        8 => (member.clone(), size, align).prop_map(|(member, size, align)| Call::Allocate { member, size, align }),
        6 => (member.clone(), any::<usize>()).prop_map(|(member, which)| Call::Free { member, which }),
        1 => (member.clone(), any::<usize>()).prop_map(|(member, which)| Call::FreeAgain { member, which }),
        2 => (member.clone(), 0..6u8, 0..5000u64).prop_map(|(member, name, length)| Call::Make { member, name, length }),
        2 => (member.clone(), 0..6u8).prop_map(|(member, name)| Call::Remove { member, name }),
        1 => member.clone().prop_map(|member| Call::Leave { member }),
        1 => member.prop_map(|member| Call::Heal { member }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn heap_and_directory_do_what_the_model_does(calls in prop::collection::vec(call(), 1..250)) {
        let world = World::new(8 << 20);
        let mut members = [world.attach(1), world.attach(2)];
        let mut next = 3;
        let mut live: BTreeMap<u64, u64> = BTreeMap::new();
        let mut freed: Vec<u64> = Vec::new();
        let mut names: HashMap<u8, u64> = HashMap::new();
        let ty = TypeRef::new("vector<u8>").unwrap();
        for call in calls {
            match call {
                Call::Allocate { member, size, align } => match members[member].allocate(size, align) {
                    Ok(offset) => {
                        let bytes = members[member].block_size(offset).unwrap();
                        prop_assert!(offset % align == 0 && bytes >= size);
                        let before = live.range(..=offset).next_back().map_or(0, |(o, s)| o + s);
                        let after = live.range(offset..).next().map_or(u64::MAX, |(o, _)| *o);
                        prop_assert!(before <= offset && offset + bytes <= after, "blocks overlap");
                        live.insert(offset, bytes);
                        freed.retain(|o| *o < offset || *o >= offset + bytes);
                    }
                    Err(error) => prop_assert_eq!(error.status, Status::NoSpace),
                },
                Call::Free { member, which } if !live.is_empty() => {
                    let offset = *live.keys().nth(which % live.len()).unwrap();
                    members[member].deallocate(offset).unwrap();
                    live.remove(&offset);
                    freed.push(offset);
                }
                Call::FreeAgain { member, which } if !freed.is_empty() => {
                    let offset = freed[which % freed.len()];
                    // The model does not know which blocks the named objects and their vectors use. If there are named
                    // objects, one of them may use this freed block by now, so the test must not free the block a
                    // second time.
                    if names.is_empty() {
                        prop_assert_eq!(members[member].deallocate(offset).unwrap_err().status, Status::BadHandle);
                    }
                }
                Call::Make { member, name, length } => {
                    let text = format!("n{name}");
                    let region = &members[member];
                    match region.claim(&text, &ty, ObjectMode::CreateOnly, Some(Duration::ZERO)) {
                        Ok(claim) => {
                            prop_assert!(!names.contains_key(&name));
                            let grown = region.vector_resize(claim.offset, 1, length);
                            prop_assert!(grown.is_ok() || grown.is_err_and(|e| e.status == Status::NoSpace));
                            region.commit(claim.offset).unwrap();
                            names.insert(name, claim.offset);
                        }
                        Err(error) if error.status == Status::NoSpace => prop_assert!(!names.contains_key(&name)),
                        Err(error) => {
                            prop_assert_eq!(error.status, Status::Exists);
                            prop_assert!(names.contains_key(&name));
                        }
                    }
                }
                Call::Remove { member, name } => {
                    let removed = members[member].remove(&format!("n{name}"));
                    prop_assert_eq!(removed.is_ok(), names.remove(&name).is_some());
                }
                Call::Leave { member } => {
                    members[member] = world.attach(next);
                    next += 1;
                }
                Call::Heal { member } => {
                    members[member].heal().unwrap();
                }
                Call::Free { .. } | Call::FreeAgain { .. } => {}
            }
            let found: HashMap<String, u64> =
                members[0].objects().unwrap().into_iter().map(|o| (o.name, o.offset)).collect();
            let expected: HashMap<String, u64> = names.iter().map(|(n, o)| (format!("n{n}"), *o)).collect();
            prop_assert_eq!(found, expected);
        }
        for (offset, bytes) in &live {
            prop_assert_eq!(members[1].block_size(*offset).unwrap(), *bytes);
            members[0].deallocate(*offset).unwrap();
        }
        for name in names.keys() {
            members[1].remove(&format!("n{name}")).unwrap();
        }
        prop_assert_eq!(members[0].statistics().used, 0);
    }
}
