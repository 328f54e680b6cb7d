//! A process that has no free descriptor still learns the numbers of its segments. The test is alone in its program,
//! because it uses up the descriptors of the whole process.

use crossdock_os::memfd;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn a_segment_has_its_number_also_when_descriptors_are_used_up() {
    let segment = memfd::create("crossdock-test", 4096).unwrap();
    let other = memfd::create("crossdock-test", 4096).unwrap();
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), maximum }).unwrap();
    assert!(memfd::create("crossdock-test", 4096).unwrap_err().is_out_of_descriptors());
    let number = memfd::number(&segment);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    assert_ne!(number, 0, "the segment counts as no memfd");
    assert_eq!(number, memfd::number(&segment));
    assert_ne!(number, memfd::number(&other));
}
