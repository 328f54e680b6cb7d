//! The description that a series carries in its pool. The publisher writes it before any observer sees the pool.
//! Observers read and check it.

use crossdock_layout::series::AtomicU64;
use crossdock_layout::wild::read_shape;
use crossdock_layout::{LAYOUT_VERSION, MemberId, Status, series};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::plan::{Plan, Span};
use super::pool::{Pool, load_bytes, load_value, store_text, store_value};
use super::spec::{AttributeSpec, Extents, FullPolicy, Spec, Variable};
use super::value::{Kind, Value};
use crate::containers::Order;
use crate::{Error, Result};

/// The description that a series carries in its pool: variables, attributes and constants.
#[derive(Clone, PartialEq, Debug)]
pub struct Description {
    /// The variables. Here `shape` is the largest shape of the variable, because each version has a shape of its own.
    pub variables: Vec<Variable>,
    /// The attributes that versions carry. Later versions may add more.
    pub attributes: Vec<AttributeSpec>,
    /// The constants of the series itself.
    pub constants: Vec<(String, Value)>,
    /// The size of a chunk in bytes. Versions share whole chunks, and `diff` compares whole chunks.
    pub chunk: u32,
    /// The member that publishes the series, or published it before it died.
    pub publisher: MemberId,
    /// The time when the series was made, in nanoseconds since 1970.
    pub created: u64,
    /// What a publish does when the pool is full.
    pub full: FullPolicy,
}

const OF_SERIES: u32 = u32::MAX;

/// Writes the header and the description into the fresh memory of a pool.
pub(super) fn write(pool: &Pool, publisher: MemberId, spec: &Spec, plan: &Plan) {
    let (identity, counts) = (&pool.header().identity, &plan.geometry.counts);
    identity.magic.store(series::SERIES_MAGIC, Relaxed);
    identity.version.store(LAYOUT_VERSION, Relaxed);
    identity.fingerprint.store(series::SERIES_FINGERPRINT, Relaxed);
    identity.size.store(plan.geometry.size, Relaxed);
    identity.publisher.store(publisher.0, Relaxed);
    identity.created.store(crossdock_os::clock::since_1970_ns(), Relaxed);
    identity.chunk.store(counts.chunk, Relaxed);
    identity.variables.store(counts.variables, Relaxed);
    identity.attributes.store(counts.attributes, Relaxed);
    identity.constants.store(counts.constants, Relaxed);
    identity.records.store(counts.records, Relaxed);
    identity.chunks.store(counts.chunks, Relaxed);
    identity.slots.store(counts.slots, Relaxed);
    identity.observers.store(counts.observers, Relaxed);
    identity.full.store(spec.full as u32, Relaxed);
    for ((index, variable), span) in (0..).zip(&spec.variables).zip(&plan.spans) {
        write_variable(pool, index, variable, span);
    }
    for (index, attribute) in (0..).zip(&spec.attributes) {
        write_attribute(pool, index, attribute);
    }
    let own = spec.constants.iter().map(|constant| (OF_SERIES, constant));
    let theirs = (0..).zip(&spec.variables).flat_map(|(v, variable)| variable.constants.iter().map(move |c| (v, c)));
    for (index, (variable, (name, value))) in (0..).zip(own.chain(theirs)) {
        let entry = pool.constant(index);
        store_text(&entry.name, name);
        store_value(&entry.value, value);
        entry.variable.store(variable, Relaxed);
    }
    pool.header().report.attributes.store(spec.attributes.len() as u32, Relaxed);
    pool.header().version_words.state.store(series::STATE_LIVE, Relaxed);
    identity.init.store(series::SERIES_READY, Release);
}

fn write_variable(pool: &Pool, index: u32, variable: &Variable, span: &Span) {
    let entry = pool.variable(index);
    store_text(&entry.name, &variable.name);
    store_text(&entry.ty, &variable.ty);
    let most = if variable.max_shape.is_empty() { &variable.shape } else { &variable.max_shape };
    entry.rank.store(most.len() as u32, Relaxed);
    entry.order.store(variable.order as u32, Relaxed);
    entry.element.store(span.extents.element, Relaxed);
    entry.max_shape.iter().zip(most).for_each(|(word, length)| word.store(*length, Relaxed));
    entry.first.store(span.first, Relaxed);
    entry.chunks.store(span.chunks, Relaxed);
}

/// Writes an attribute's name and kind. Observers use the entry as soon as the number of attributes in the header
/// includes this entry.
pub(super) fn write_attribute(pool: &Pool, index: u32, attribute: &AttributeSpec) {
    let entry = pool.attribute(index);
    store_text(&entry.name, &attribute.name);
    entry.kind.store(attribute.ty as u32, Relaxed);
}

/// Reads the attributes that the publisher has named so far, at most `limit`. An entry whose name is not valid gets its
/// number as its name.
pub(super) fn read_attributes(pool: &Pool, limit: u32) -> Vec<AttributeSpec> {
    let known = pool.header().report.attributes.load(Acquire).clamped(pool.geometry().counts.attributes.min(limit));
    let read = |index: u32| {
        let entry = pool.attribute(index);
        let ty = Kind::from_number(entry.kind.load(Relaxed)).unwrap_or(Kind::I64);
        AttributeSpec { name: read_name(&entry.name).unwrap_or_else(|| format!("attribute-{index}")), ty }
    };
    (0..known).map(read).collect()
}

fn read_name(words: &[AtomicU64]) -> Option<String> {
    let text = String::from_utf8(load_bytes(words)).ok()?;
    crossdock_layout::name::check(&text).is_ok().then_some(text)
}

/// Reads and checks a description. Besides the description, the result has the range of slot table entries of each
/// variable. These ranges lie within the table.
pub(super) fn read(pool: &Pool) -> Result<(Description, Vec<Span>)> {
    let (identity, counts) = (&pool.header().identity, pool.geometry().counts);
    let corrupt = |what: String| Error::new(Status::Corrupt, what);
    let mut variables = Vec::new();
    let mut spans = Vec::new();
    for index in 0..counts.variables {
        let (variable, span) = read_variable(pool, index)
            .ok_or_else(|| corrupt(format!("the description of its variable number {index} is none")))?;
        variables.push(variable);
        spans.push(span);
    }
    let mut constants = Vec::new();
    for index in 0..counts.constants {
        let entry = pool.constant(index);
        let (Some(name), Some(value)) = (read_name(&entry.name), load_value(&entry.value)) else {
            return Err(corrupt(format!("its constant number {index} is none")));
        };
        let variable = entry.variable.load(Relaxed);
        match variable.below(counts.variables) {
            _ if variable.is(OF_SERIES) => constants.push((name, value)),
            Some(variable) => variables[variable as usize].constants.push((name, value)),
            None => {
                let variable = variable.unchecked_for_display();
                return Err(corrupt(format!("its constant '{name}' belongs to variable {variable}")));
            }
        }
    }
    let description = Description {
        variables,
        attributes: read_attributes(pool, u32::MAX),
        constants,
        chunk: counts.chunk,
        publisher: MemberId(identity.publisher.load(Relaxed)),
        created: identity.created.load(Relaxed),
        // A policy that this build does not know is treated like `TakeBack`, because that policy demands the most care
        // of observers.
        full: FullPolicy::from_number(identity.full.load(Relaxed)).unwrap_or(FullPolicy::TakeBack),
    };
    Ok((description, spans))
}

fn read_variable(pool: &Pool, index: u32) -> Option<(Variable, Span)> {
    let entry = pool.variable(index);
    let (most, _) = read_shape(&entry.max_shape, entry.rank.load(Relaxed), 1, u64::MAX)?;
    let variable = Variable {
        name: read_name(&entry.name)?,
        ty: String::from_utf8(load_bytes(&entry.ty)).ok()?,
        shape: most.clone(),
        max_shape: most,
        order: Order::from_number(entry.order.load(Relaxed)).unwrap_or(Order::C),
        constants: Vec::new(),
    };
    let extents = Extents::of("", &variable).ok()?;
    let counts = pool.geometry().counts;
    let wanted = extents.most.div_ceil(u64::from(counts.chunk));
    let chunks = entry.chunks.load(Relaxed).at_most(counts.chunks).filter(|chunks| u64::from(*chunks) == wanted)?;
    let first = entry.first.load(Relaxed).at_most(counts.chunks - chunks)?;
    Some((variable, Span { first, chunks, extents }))
}
