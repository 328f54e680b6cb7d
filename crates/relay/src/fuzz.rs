//! Entry point for the fuzzer: decodes the messages that relays of other nodes send.

use std::fmt::Debug;

use crate::messages::{self, BodyField, ChannelKey, ChannelKeys, Deliver, Ended, Open, Opened, Released};
use crate::region::{FreezeRequest, FrozenExtents, HandOver};
use crate::series::messages::{Find, FoundSeries, Offered, SeriesEnded, Supplied, Supply, VersionAck};

/// Decodes bytes as the body of a request to a service of this crate, or of an answer. The first byte chooses the type
/// of the body. If the body is accepted, encoding it again must give the same bytes, because each body has exactly one
/// encoding.
pub fn fuzz_decode(bytes: &[u8]) {
    let Some((which, body)) = bytes.split_first() else { return };
    match messages::OPEN + u32::from(which % 17) {
        messages::OPEN => one_encoding::<Open>(body),
        messages::DELIVER => one_encoding::<Deliver>(body),
        messages::RELEASED => one_encoding::<Released>(body),
        messages::ENDED => one_encoding::<Ended>(body),
        messages::KNOWN => one_encoding::<ChannelKeys>(body),
        105 => one_encoding::<Opened>(body),
        106 => one_encoding::<Find>(body),
        107 => one_encoding::<FoundSeries>(body),
        108 => one_encoding::<Supply>(body),
        109 => one_encoding::<Supplied>(body),
        110 => one_encoding::<Offered>(body),
        111 => one_encoding::<VersionAck>(body),
        112 => one_encoding::<SeriesEnded>(body),
        113 => one_encoding::<FreezeRequest>(body),
        114 => one_encoding::<FrozenExtents>(body),
        115 => one_encoding::<HandOver>(body),
        _ => one_encoding::<ChannelKey>(body),
    }
}

fn one_encoding<W: BodyField + Debug>(body: &[u8]) {
    if let Ok(word) = W::decode(body) {
        assert_eq!(word.encode(), body, "{word:?}");
    }
}

#[cfg(test)]
mod tests {
    use crossdock_os::testing::Random;

    use super::fuzz_decode;

    #[test]
    fn random_bodies_and_changed_ones_have_one_encoding_or_none() {
        let mut random = Random(3);
        for _ in 0..20_000 {
            let length = random.below(256);
            // Most bytes of an input are zero, because lengths and counts are small numbers that are encoded in eight
            // bytes.
            let bytes: Vec<u8> = (0..length).map(|_| if random.one_in(8) { random.byte() % 16 } else { 0 }).collect();
            fuzz_decode(&bytes);
            // A short beginning of each input is tried too, because some short bodies are accepted.
            fuzz_decode(&bytes[..length.min(1 + 8 * (length % 6))]);
        }
    }

    /// A flag must have only one encoding. If every number other than 1 were read as false, a flag would have many
    /// encodings.
    #[test]
    fn a_flag_is_zero_or_one() {
        let mut open = vec![0; 1 + 16 + 24 + 8];
        open.extend(2u64.to_le_bytes());
        open.extend([0; 8]);
        fuzz_decode(&open);
    }
}
