//! The expected bytes of each record. If a new broker encoded a record differently, it could not read the journal that
//! the broker before it wrote.
//!
//! `UPDATE=1 cargo test -p crossdock-node golden` writes the expected bytes again.

use super::encode;

#[test]
fn golden_bytes_of_every_record() {
    let mut text = String::new();
    for record in super::tests::records() {
        let name = format!("{record:?}").replace("Item(", "Item::");
        let name = name.split([' ', '(', '{']).next().unwrap_or_default();
        let hex: String = encode(&record).iter().map(|byte| format!("{byte:02x}")).collect();
        text += &format!("{name} {hex}\n");
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/journal/codec/golden.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let recorded = std::fs::read_to_string(path).unwrap_or_default();
    for (now, then) in text.lines().zip(recorded.lines()) {
        assert_eq!(now, then);
    }
    assert_eq!(text, recorded, "records were added or removed: UPDATE=1 records them again");
}
