//! Series with one variable `u`, whose elements are all the same number, and so is the attribute `value`.

use crossdock_client::{Publisher, Status, Value, Version};

/// In-place memory as numbers.
pub fn numbers(publisher: &mut Publisher) -> &mut [u64] {
    publisher.elements("u").unwrap()
}

/// Every element is `value`, and so is the attribute.
pub fn publish(publisher: &mut Publisher, value: u64) -> u64 {
    numbers(publisher).fill(value);
    publisher.publish(&[("value", Value::U64(value))]).unwrap()
}

pub fn shows(version: &Version, value: u64) {
    assert_eq!(version.attribute("value").unwrap(), &Value::U64(value));
    let numbers = version.elements::<u64>("u").unwrap();
    assert!(numbers.iter().all(|n| *n == value), "version {} is torn", version.sequence());
}

/// The status and the text of an error.
pub fn failed<T: std::fmt::Debug>(result: crossdock_client::Result<T>) -> (Status, String) {
    let error = result.unwrap_err();
    (error.status, error.to_string())
}
