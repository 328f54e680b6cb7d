//! Records as bytes: a type, then its fields, little-endian; strings and lists with their length in front.

use crossdock_layout::wire::{Grant, SegmentKind};
use crossdock_layout::{MemberId, Rights, SegmentId};

use crate::broker::{Cause, Peer, Record};

mod items;

struct Out(Vec<u8>);

impl Out {
    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
    fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
    fn text(&mut self, text: &str) -> &mut Self {
        self.u32(text.len() as u32);
        self.0.extend_from_slice(text.as_bytes());
        self
    }
    fn cause(&mut self, cause: Cause) -> &mut Self {
        self.u64(cause.member.0).u64(cause.request)
    }
    fn grants(&mut self, grants: &[Grant]) -> &mut Self {
        self.u32(grants.len() as u32);
        for grant in grants {
            self.u32(grant.kind as u32).u32(grant.rights.0).text(&grant.pattern);
        }
        self
    }
}

/// A record as bytes.
pub fn encode(record: &Record) -> Vec<u8> {
    let mut out = Out(Vec::with_capacity(128));
    match record {
        Record::Counters { member, segment, number } => {
            out.u32(1).u64(*member).u64(*segment).u64(*number);
        }
        Record::Workflow { number, quota, owner, name, cause } => {
            out.u32(2).u64(*number).u64(*quota).u64(owner.0).text(name).cause(*cause);
        }
        Record::WorkflowEnd { number, cause } => {
            out.u32(3).u64(*number).cause(*cause);
        }
        Record::Endpoint { number, workflow, task, grants, cause } => {
            out.u32(4).u64(*number).u64(*workflow).text(task).grants(grants).cause(*cause);
        }
        Record::Grants { endpoint, grants, cause } => {
            out.u32(5).u64(*endpoint).grants(grants).cause(*cause);
        }
        Record::Member { member, endpoint, workflow, task, rank, peer, token } => {
            out.u32(6).u64(member.0).u64(*endpoint).u64(*workflow).text(task).u32(*rank);
            out.u32(peer.pid).u64(peer.started).u32(peer.uid);
            out.0.extend_from_slice(token);
        }
        Record::MemberGone { member } => {
            out.u32(7).u64(member.0);
        }
        Record::Segment { segment, workflow, kind, name, size, reserved, attribute, cause } => {
            out.u32(8).u64(segment.0).u64(*workflow).u32(*kind as u32).text(name);
            out.u64(*size).u64(*reserved).u64(*attribute).cause(*cause);
        }
        Record::Reserved { segment, upto } => {
            out.u32(9).u64(segment.0).u64(*upto);
        }
        Record::Removed { segment, holders, cause } => {
            out.u32(10).u64(segment.0).u32(holders.len() as u32);
            for (member, count) in holders {
                out.u64(member.0).u32(*count);
            }
            out.cause(*cause);
        }
        Record::Released { segment } => {
            out.u32(11).u64(segment.0);
        }
        Record::Series { segment, workflow, name, size, reserved, attribute, pins, cause } => {
            out.u32(13).u64(segment.0).u64(*workflow).text(name).u64(*size).u64(*reserved).u64(*attribute);
            out.u32(*pins).cause(*cause);
        }
        Record::Pins { segment, upto, cause } => {
            out.u32(14).u64(segment.0).u32(*upto).cause(*cause);
        }
        Record::PinTaken { segment, pin, endpoint, cause } => {
            out.u32(15).u64(segment.0).u32(*pin).u64(*endpoint).cause(*cause);
        }
        Record::PinFreed { segment, pin } => {
            out.u32(16).u64(segment.0).u32(*pin);
        }
        Record::Unpublished { segment, cause } => {
            out.u32(17).u64(segment.0).cause(*cause);
        }
        Record::Item(record) => items::encode(record, &mut out),
        Record::Outcome { cause, made, value } => {
            out.u32(12).cause(*cause).u32(u32::from(*made)).u64(*value);
        }
    }
    out.0
}

struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }
    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }
    fn text(&mut self) -> Option<String> {
        let length = self.u32()? as usize;
        let (field, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(std::str::from_utf8(field).ok()?.to_owned())
    }
    fn kind(&mut self) -> Option<SegmentKind> {
        SegmentKind::from_u32(self.u32()?)
    }
    fn member(&mut self) -> Option<MemberId> {
        self.u64().map(MemberId)
    }
    fn segment(&mut self) -> Option<SegmentId> {
        self.u64().map(SegmentId)
    }
    fn cause(&mut self) -> Option<Cause> {
        Some(Cause { member: self.member()?, request: self.u64()? })
    }
    fn grants(&mut self) -> Option<Vec<Grant>> {
        let count = self.u32()?;
        (0..count)
            .map(|_| {
                let (kind, rights) = (self.kind()?, Rights(self.u32()?));
                Some(Grant { pattern: self.text()?, kind, rights })
            })
            .collect()
    }
}

/// The record that these bytes are; `None` if they are none.
pub fn decode(bytes: &[u8]) -> Option<Record> {
    let mut r = In(bytes);
    let record = match r.u32()? {
        1 => Record::Counters { member: r.u64()?, segment: r.u64()?, number: r.u64()? },
        2 => Record::Workflow {
            number: r.u64()?,
            quota: r.u64()?,
            owner: r.member()?,
            name: r.text()?,
            cause: r.cause()?,
        },
        3 => Record::WorkflowEnd { number: r.u64()?, cause: r.cause()? },
        4 => Record::Endpoint {
            number: r.u64()?,
            workflow: r.u64()?,
            task: r.text()?,
            grants: r.grants()?,
            cause: r.cause()?,
        },
        5 => Record::Grants { endpoint: r.u64()?, grants: r.grants()?, cause: r.cause()? },
        6 => Record::Member {
            member: r.member()?,
            endpoint: r.u64()?,
            workflow: r.u64()?,
            task: r.text()?,
            rank: r.u32()?,
            peer: Peer { pid: r.u32()?, started: r.u64()?, uid: r.u32()? },
            token: r.bytes()?,
        },
        7 => Record::MemberGone { member: r.member()? },
        8 => Record::Segment {
            segment: r.segment()?,
            workflow: r.u64()?,
            kind: r.kind()?,
            name: r.text()?,
            size: r.u64()?,
            reserved: r.u64()?,
            attribute: r.u64()?,
            cause: r.cause()?,
        },
        9 => Record::Reserved { segment: r.segment()?, upto: r.u64()? },
        10 => {
            let (segment, count) = (r.segment()?, r.u32()?);
            let holders = (0..count).map(|_| Some((r.member()?, r.u32()?))).collect::<Option<_>>()?;
            Record::Removed { segment, holders, cause: r.cause()? }
        }
        11 => Record::Released { segment: r.segment()? },
        12 => Record::Outcome { cause: r.cause()?, made: r.u32()? == 1, value: r.u64()? },
        13 => Record::Series {
            segment: r.segment()?,
            workflow: r.u64()?,
            name: r.text()?,
            size: r.u64()?,
            reserved: r.u64()?,
            attribute: r.u64()?,
            pins: r.u32()?,
            cause: r.cause()?,
        },
        14 => Record::Pins { segment: r.segment()?, upto: r.u32()?, cause: r.cause()? },
        15 => Record::PinTaken { segment: r.segment()?, pin: r.u32()?, endpoint: r.u64()?, cause: r.cause()? },
        16 => Record::PinFreed { segment: r.segment()?, pin: r.u32()? },
        17 => Record::Unpublished { segment: r.segment()?, cause: r.cause()? },
        number => Record::Item(items::decode(number, &mut r)?),
    };
    r.0.is_empty().then_some(record)
}

#[cfg(test)]
mod golden;

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn records() -> Vec<Record> {
        let cause = Cause { member: MemberId(7), request: 8 };
        let grants = vec![Grant { pattern: "a/*".into(), kind: SegmentKind::Port, rights: Rights::PRODUCE }];
        let (name, task) = ("n".to_owned(), "t".to_owned());
        vec![
            Record::Counters { member: 1, segment: 2, number: 3 },
            Record::Workflow { number: 1, quota: 2, owner: MemberId(3), name: name.clone(), cause },
            Record::WorkflowEnd { number: 1, cause },
            Record::Endpoint { number: 1, workflow: 2, task: task.clone(), grants: grants.clone(), cause },
            Record::Grants { endpoint: 1, grants, cause },
            Record::Member {
                member: MemberId(4097),
                endpoint: 0,
                workflow: 1,
                task,
                rank: 2,
                peer: Peer { pid: 3, started: 4, uid: 5 },
                token: [6; 16],
            },
            Record::MemberGone { member: MemberId(9) },
            Record::Segment {
                segment: SegmentId(1),
                workflow: 2,
                kind: SegmentKind::Region,
                name: name.clone(),
                size: 3,
                reserved: 4,
                attribute: 5,
                cause,
            },
            Record::Reserved { segment: SegmentId(1), upto: 2 },
            Record::Removed { segment: SegmentId(1), holders: vec![(MemberId(2), 3)], cause },
            Record::Released { segment: SegmentId(1) },
            Record::Outcome { cause, made: true, value: 3 },
            Record::Series {
                segment: SegmentId(1),
                workflow: 2,
                name,
                size: 3,
                reserved: 4,
                attribute: 5,
                pins: 6,
                cause,
            },
            Record::Pins { segment: SegmentId(1), upto: 2, cause },
            Record::PinTaken { segment: SegmentId(1), pin: 2, endpoint: 3, cause },
            Record::PinFreed { segment: SegmentId(1), pin: 2 },
            Record::Unpublished { segment: SegmentId(1), cause },
        ]
    }

    #[test]
    fn every_record_comes_back_and_none_comes_out_of_a_part_of_it() {
        for record in records() {
            let bytes = encode(&record);
            assert_eq!(decode(&bytes), Some(record));
            for length in 0..bytes.len() {
                assert_eq!(decode(&bytes[..length]), None);
            }
        }
    }
}
