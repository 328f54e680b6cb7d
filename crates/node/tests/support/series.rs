//! Series for tests. Each has one variable `u`. In a version, all elements of `u` and the attribute `value` have the
//! same number.

use crossdock_client::{Publisher, Status, Value, Version};

/// Gives the elements of the publisher's variable `u`, as numbers that the test changes in place.
pub fn numbers(publisher: &mut Publisher) -> &mut [u64] {
    publisher.elements("u").unwrap()
}

/// Publishes a version whose elements and whose attribute are all `value`.
pub fn publish(publisher: &mut Publisher, value: u64) -> u64 {
    numbers(publisher).fill(value);
    publisher.publish(&[("value", Value::U64(value))]).unwrap()
}

pub fn shows(version: &Version, value: u64) {
    assert_eq!(version.attribute("value").unwrap(), &Value::U64(value));
    let numbers = version.elements::<u64>("u").unwrap();
    assert!(numbers.iter().all(|n| *n == value), "version {} is torn", version.sequence());
}

/// Gives the status and the text of the error in `result`.
pub fn failed<T: std::fmt::Debug>(result: crossdock_client::Result<T>) -> (Status, String) {
    let error = result.unwrap_err();
    (error.status, error.to_string())
}
