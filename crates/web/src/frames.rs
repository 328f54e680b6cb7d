//! Versions of series as the page shows them. Each version is reduced to a picture or a curve when it is published, and
//! kept for the page's slider.
//!
//! The server holds a version only while it reads the version, so an open page costs the publisher no memory.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crossdock_client::{Observer, Session, Value, Version};
use serde::Serialize;

/// How many frames of one variable are kept.
const KEPT: usize = 240;
/// The maximum number of variables that are followed at the same time.
const FOLLOWED: usize = 8;
/// How long a variable is still followed after a page last asked for the variable.
const FORGET: Duration = Duration::from_secs(30);
/// The maximum number of rows and of columns of a picture, and of points of a curve.
const SIDE: usize = 128;
const POINTS: usize = 512;

/// Identifies a variable of a series. The frames of a variable are found by this key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub place: String,
    pub workflow: String,
    pub series: String,
    pub variable: String,
}

/// One version of a variable, reduced to a picture or a curve.
#[derive(Clone, Debug, Serialize)]
pub struct Frame {
    pub sequence: u64,
    pub time_ns: u64,
    pub attributes: Vec<(String, String)>,
    /// The extents in C order: the extents of the variable, in reverse order if the variable is in Fortran order.
    pub shape: Vec<u64>,
    /// A sentence about what the picture or curve leaves out.
    pub note: String,
    /// The number of rows; 1 for a curve. A variable with more elements than a curve can show is divided into sections.
    /// The curve then has two numbers for each section: the smallest and the largest.
    pub rows: usize,
    pub columns: usize,
    pub least: f64,
    pub mean: f64,
    pub greatest: f64,
    #[serde(skip)]
    pub values: Vec<f32>,
}

struct FollowedSeries {
    observer: Observer,
    frames: VecDeque<Frame>,
    asked: Instant,
}

/// All variables that pages look at.
#[derive(Default)]
pub struct Frames {
    all: HashMap<Key, FollowedSeries>,
}

impl Frames {
    /// Gives the frames of a variable so far. The first call for a variable starts following it.
    pub fn of(&mut self, key: &Key, session: Option<Session>) -> Result<&VecDeque<Frame>, String> {
        if !self.all.contains_key(key) {
            let session = session.ok_or_else(|| format!("nothing is known of the workflow {}", key.workflow))?;
            if self.all.len() >= FOLLOWED {
                let oldest = self.all.iter().min_by_key(|(_, f)| f.asked).map(|(key, _)| key.clone());
                oldest.and_then(|key| self.all.remove(&key));
            }
            let living = session.observe(&key.series, Duration::ZERO);
            let observer =
                living.or_else(|_| session.observe_former(&key.series, Duration::ZERO)).map_err(|e| e.to_string())?;
            self.all.insert(key.clone(), FollowedSeries { observer, frames: VecDeque::new(), asked: Instant::now() });
            self.follow(key);
        }
        let followed = self.all.get_mut(key).ok_or("the series has just ended")?;
        followed.asked = Instant::now();
        Ok(&followed.frames)
    }

    /// Reads the newest version of every variable that is followed.
    pub fn tick(&mut self) {
        self.all.retain(|_, followed| followed.asked.elapsed() < FORGET);
        let keys: Vec<Key> = self.all.keys().cloned().collect();
        keys.iter().for_each(|key| self.follow(key));
    }

    fn follow(&mut self, key: &Key) {
        let Some(followed) = self.all.get_mut(key) else { return };
        // There is no version yet, or the publisher took it back during the read. The next call of `tick` tries again.
        let Ok(version) = followed.observer.latest() else { return };
        if followed.frames.back().is_some_and(|last| last.sequence == version.sequence()) {
            return;
        }
        if let Some(frame) = frame(&version, &key.variable) {
            followed.frames.push_back(frame);
            if followed.frames.len() > KEPT {
                followed.frames.pop_front();
            }
        }
    }
}

fn frame(version: &Version, variable: &str) -> Option<Frame> {
    let declared = version.description().variables.iter().find(|v| v.name == variable)?;
    // The page shows every variable in C order. The bytes stay as they lie in memory; only the extents of a variable in
    // Fortran order are reversed.
    let shape = declared.c_shape(version.shape(variable).ok()?);
    let reduced = reduce(&declared.ty, &shape, version.bytes(variable).ok()?)?;
    if !version.is_valid() {
        return None;
    }
    let finite = || reduced.values.iter().map(|v| f64::from(*v)).filter(|v| v.is_finite());
    let (sum, count) = finite().fold((0.0, 0u64), |(sum, n), v| (sum + v, n + 1));
    let text = |value: &Value| match value {
        Value::I64(n) => n.to_string(),
        Value::U64(n) => n.to_string(),
        Value::F64(x) => x.to_string(),
        Value::Text(text) => text.to_string(),
    };
    Some(Frame {
        sequence: version.sequence(),
        time_ns: version.time(),
        attributes: version.attributes().iter().map(|(n, v)| (n.clone(), text(v))).collect(),
        shape,
        note: reduced.note,
        rows: reduced.rows,
        columns: reduced.columns,
        least: finite().fold(f64::INFINITY, f64::min),
        mean: if count > 0 { sum / count as f64 } else { f64::NAN },
        greatest: finite().fold(f64::NEG_INFINITY, f64::max),
        values: reduced.values,
    })
}

#[derive(Debug, PartialEq)]
pub struct ReducedVersion {
    pub rows: usize,
    pub columns: usize,
    pub values: Vec<f32>,
    pub note: String,
}

/// Reduces a variable to a picture of its last two dimensions, or to a curve if it has one dimension; `None` if the
/// elements are no numbers.
pub fn reduce(ty: &str, shape: &[u64], bytes: &[u8]) -> Option<ReducedVersion> {
    let (scalar, inner) = ty.split_once('[').map_or((ty, ""), |(scalar, rest)| (scalar, rest.trim_end_matches(']')));
    let (size, read) = reader(scalar)?;
    let mut extents: Vec<usize> = shape.iter().map(|n| *n as usize).collect();
    for n in inner.split([',', ']', '[']).filter(|n| !n.trim().is_empty()) {
        extents.push(n.trim().parse().ok()?);
    }
    let total = extents.iter().try_fold(1usize, |all, n| all.checked_mul(*n))?;
    if total == 0 || total.checked_mul(size)? > bytes.len() {
        return None;
    }
    let at = |index: usize| read(&bytes[index * size..index * size + size]);
    // If the last of three or more dimensions is short, its elements are taken for colours or for the components of a
    // vector. The picture shows their mean.
    let channels = if extents.len() >= 3 && extents.last().is_some_and(|n| *n <= 4) { extents.pop()? } else { 1 };
    extents.retain(|n| *n > 1);
    let mut note = if channels > 1 { format!("mean of {channels} components; ") } else { String::new() };
    let element = |index: usize| (0..channels).map(|c| at(index * channels + c)).sum::<f64>() / channels as f64;
    let Some((columns, before)) = extents.split_last() else {
        return Some(ReducedVersion { rows: 1, columns: 1, values: vec![element(0) as f32], note });
    };
    let Some((rows, above)) = before.split_last() else {
        return Some(curve(*columns, &element));
    };
    // With more than two dimensions, the picture shows the elements whose other indices are in the middle of their
    // ranges.
    let mut offset = 0;
    for n in above {
        offset = offset * n + n / 2;
        note += &format!("slice {} of {n}; ", n / 2);
    }
    Some(picture((*rows, *columns), offset * rows * columns, &element, note))
}

fn curve(count: usize, element: &dyn Fn(usize) -> f64) -> ReducedVersion {
    if count <= 2 * POINTS {
        let values = (0..count).map(|n| element(n) as f32).collect();
        return ReducedVersion { rows: 1, columns: count, values, note: String::new() };
    }
    let mut values = Vec::with_capacity(2 * POINTS);
    for stretch in 0..POINTS {
        let (from, to) = (stretch * count / POINTS, (stretch + 1) * count / POINTS);
        let step = ((to - from) / 64).max(1);
        let some = || (from..to).step_by(step).map(element);
        values.push(some().fold(f64::INFINITY, f64::min) as f32);
        values.push(some().fold(f64::NEG_INFINITY, f64::max) as f32);
    }
    ReducedVersion { rows: 1, columns: 2 * POINTS, values, note: format!("least and greatest of {POINTS} stretches; ") }
}

fn picture(
    (rows, columns): (usize, usize),
    offset: usize,
    element: &dyn Fn(usize) -> f64,
    mut note: String,
) -> ReducedVersion {
    // Both sides shrink by the same factor, so that a circle stays a circle.
    let factor = ((rows * columns) as f64 / (SIDE * SIDE) as f64).sqrt();
    let factor = factor.max(rows.max(columns) as f64 / (4 * SIDE) as f64).max(1.0);
    let reduced = |n: usize| ((n as f64 / factor).round() as usize).clamp(2, n);
    let (height, width) = (reduced(rows), reduced(columns));
    if (height, width) != (rows, columns) {
        note += &format!("{rows} × {columns} shown as {height} × {width}; ");
    }
    let mut values = Vec::with_capacity(height * width);
    // At most 4 × 4 elements of each cell are read, which is enough for a picture. So the time for a large array is the
    // same as for a small array.
    let samples = |from: usize, to: usize| (from..to).step_by(((to - from) / 4).max(1));
    for y in 0..height {
        for x in 0..width {
            let (mut sum, mut count) = (0.0, 0.0);
            for row in samples(y * rows / height, (y + 1) * rows / height) {
                for column in samples(x * columns / width, (x + 1) * columns / width) {
                    sum += element(offset + row * columns + column);
                    count += 1.0;
                }
            }
            values.push((sum / count) as f32);
        }
    }
    ReducedVersion { rows: height, columns: width, values, note }
}

/// The size of an element in bytes, and the function that reads it as a number.
type ElementReader = (usize, fn(&[u8]) -> f64);

fn reader(scalar: &str) -> Option<ElementReader> {
    macro_rules! number {
        ($t:ty) => {
            (size_of::<$t>(), |b: &[u8]| <$t>::from_le_bytes(b.try_into().unwrap_or_default()) as f64)
        };
    }
    Some(match scalar {
        "f64" => number!(f64),
        "f32" => number!(f32),
        "i8" => number!(i8),
        "i16" => number!(i16),
        "i32" => number!(i32),
        "i64" => number!(i64),
        "u8" | "bool" => number!(u8),
        "u16" => number!(u16),
        "u32" => number!(u32),
        "u64" => number!(u64),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: impl Iterator<Item = f64>) -> Vec<u8> {
        values.flat_map(f64::to_le_bytes).collect()
    }

    #[test]
    fn a_small_array_is_shown_as_it_is_and_a_large_one_by_means() {
        let small = reduce("f64", &[2, 3], &bytes((0..6).map(f64::from))).unwrap();
        assert_eq!(
            (small.rows, small.columns, small.values.as_slice()),
            (2, 3, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0].as_slice())
        );
        let large = reduce("f64", &[256, 256], &bytes((0..256 * 256).map(|n| f64::from(n / 256)))).unwrap();
        assert_eq!((large.rows, large.columns, large.values[0], large.values[128]), (128, 128, 0.5, 2.5));
        assert!(large.note.contains("256 × 256 shown as 128 × 128"));
        let long = reduce("f64", &[100, 1600], &bytes((0..160_000).map(f64::from))).unwrap();
        assert_eq!((long.rows, long.columns), (32, 512));
        let thin = reduce("u8", &[2, 100_000], &[0; 200_000]).unwrap();
        assert_eq!((thin.rows, thin.columns), (2, 512));
    }

    #[test]
    fn a_curve_keeps_its_peaks() {
        let long = reduce("f64", &[100_000], &bytes((0..100_000).map(f64::from))).unwrap();
        assert_eq!((long.rows, long.columns, long.values[0]), (1, 1024, 0.0));
        assert!(long.values[1023] > 99_990.0 && long.values.windows(2).all(|w| w[0] <= w[1]));
    }

    #[test]
    fn of_more_dimensions_the_middle_is_shown_and_colours_become_one() {
        let cube = reduce("f64", &[4, 2, 8], &bytes((0..64).map(f64::from))).unwrap();
        assert_eq!((cube.rows, cube.columns, cube.values[0]), (2, 8, 32.0));
        let colours = reduce("u8", &[2, 2, 3], &[0, 3, 6, 9, 9, 9, 1, 1, 1, 2, 2, 2]).unwrap();
        assert_eq!(colours.values, [3.0, 9.0, 1.0, 2.0]);
        let vectors = reduce("f64[3]", &[2, 5], &bytes((0..30).map(|_| 1.0))).unwrap();
        assert_eq!((vectors.rows, vectors.columns), (2, 5));
    }

    #[test]
    fn what_is_no_number_or_too_short_has_no_picture() {
        assert_eq!(reduce("{i32,f64}", &[2], &[0; 32]), None);
        assert_eq!(reduce("f64", &[2, 2], &[0; 8]), None);
        assert_eq!(reduce("f64", &[0], &[]), None);
        assert_eq!(reduce("f64", &[u64::MAX, u64::MAX], &[0; 8]), None);
        assert_eq!(reduce("i32", &[], &5i32.to_le_bytes()).map(|r| r.values), Some(vec![5.0]));
    }
}
