//! Writes a choice of transports into messages to other hosts, as the word that `--transport` takes, and reads the
//! choice from this word.

use crossdock_link::Choice;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

pub fn serialize<S: Serializer>(choice: &Choice, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(choice)
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Choice, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}
