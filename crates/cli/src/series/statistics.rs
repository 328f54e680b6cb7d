//! Computes the least, the mean and the greatest number of a variable.

/// Statistics of the elements of a variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    /// The least of the finite elements.
    pub least: f64,
    /// The mean of the finite elements.
    pub mean: f64,
    /// The greatest of the finite elements.
    pub greatest: f64,
    /// The number of elements that are not finite.
    pub not_finite: u64,
}

/// Computes the statistics of elements of a scalar type, or of arrays of such a type. Returns `None` for structs and
/// other types, or if there are no elements.
pub fn of(type_name: &str, bytes: &[u8]) -> Option<Statistics> {
    let scalar = &type_name[..type_name.find('[').unwrap_or(type_name.len())];
    macro_rules! each {
        ($t:ty) => {
            over(
                bytes
                    .chunks_exact(size_of::<$t>())
                    .map(|b| <$t>::from_le_bytes(b.try_into().unwrap_or_default()) as f64),
            )
        };
    }
    match scalar {
        "f64" => each!(f64),
        "f32" => each!(f32),
        "i8" => each!(i8),
        "i16" => each!(i16),
        "i32" => each!(i32),
        "i64" => each!(i64),
        "u8" | "bool" => each!(u8),
        "u16" => each!(u16),
        "u32" => each!(u32),
        "u64" => each!(u64),
        _ => None,
    }
}

fn over(numbers: impl Iterator<Item = f64>) -> Option<Statistics> {
    let (mut least, mut greatest, mut sum, mut finite, mut not_finite) =
        (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0u64, 0);
    for x in numbers {
        if x.is_finite() {
            (least, greatest, sum, finite) = (least.min(x), greatest.max(x), sum + x, finite + 1);
        } else {
            not_finite += 1;
        }
    }
    (finite + not_finite > 0).then(|| Statistics { least, mean: sum / finite as f64, greatest, not_finite })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_counted_and_left_out() {
        let bytes: Vec<u8> = [1.0f64, f64::NAN, 3.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(of("f64", &bytes), Some(Statistics { least: 1.0, mean: 2.0, greatest: 3.0, not_finite: 1 }));
    }

    #[test]
    fn arrays_count_as_their_elements_and_structs_have_no_least() {
        assert_eq!(of("i16[2]", &[1, 0, 0xff, 0xff]).map(|s| (s.least, s.greatest)), Some((-1.0, 1.0)));
        assert_eq!(of("{i32,f64}", &[0; 16]), None);
        assert_eq!(of("f64", &[]), None);
    }
}
