//! Reads times as people write them, such as `10 s`, `500ms` and `2 min`, and the values of `--every`, which may also
//! count versions.

use std::time::Duration;

/// How often a checkpoint is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// Save when this many versions have been published since the last saved one.
    Versions(u64),
    /// Save when this time has passed since the last save.
    Time(Duration),
}

const UNITS: [(&str, f64); 8] = [
    ("ms", 0.001),
    ("s", 1.0),
    ("sec", 1.0),
    ("seconds", 1.0),
    ("min", 60.0),
    ("minutes", 60.0),
    ("h", 3600.0),
    ("hours", 3600.0),
];

/// Reads a time with its unit, or a plain number of seconds. All options that take a time use this function, except
/// `checkpoint --every`.
pub fn time(text: &str) -> Result<Duration, String> {
    with_unit(text, Some(1.0))
}

/// Reads a time. A number without a unit counts in units of `plain` seconds; if `plain` is `None`, such a number is
/// refused.
fn with_unit(text: &str, plain: Option<f64>) -> Result<Duration, String> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (digits, unit) = (&text[..split], text[split..].trim());
    let named = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let factor = if unit.is_empty() { plain } else { named };
    match (digits.parse::<f64>(), factor) {
        (Ok(n), Some(factor)) if n * factor <= 1e9 => Ok(Duration::from_secs_f64(n * factor)),
        (Ok(_), None) if unit.is_empty() => Err(format!("`{text}` has no unit: say `{text} s` or `{text} min`")),
        _ => Err(format!("`{text}` is no time: write a number and ms, s, min or h, such as `10 s`")),
    }
}

/// Reads a time as [`time`] does, and refuses less than one second.
pub fn at_least_a_second(text: &str) -> Result<Duration, String> {
    match time(text)? {
        short if short < Duration::from_secs(1) => Err(format!("`{text}` is less than a second; say `1 s` or more")),
        time => Ok(time),
    }
}

/// Reads a number of versions such as `20`, or a time such as `10 s`.
pub fn every(text: &str) -> Result<Every, String> {
    match text.trim().parse::<u64>() {
        Ok(0) => Err("every 0 versions is never; 1 is each version".into()),
        Ok(n) => Ok(Every::Versions(n)),
        Err(_) => match with_unit(text, None) {
            Ok(time) if time.is_zero() => Err("a time of 0 is no pause; `1` is each version".into()),
            Ok(time) => Ok(Every::Time(time)),
            Err(why) => Err(format!("{why}; a plain number such as `20` counts versions")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_numbers_count_versions_and_times_have_units() {
        assert_eq!(every("20"), Ok(Every::Versions(20)));
        assert_eq!(every("10 s"), Ok(Every::Time(Duration::from_secs(10))));
        assert_eq!(every("1.5min"), Ok(Every::Time(Duration::from_secs(90))));
        assert_eq!(time("250ms"), Ok(Duration::from_millis(250)));
    }

    #[test]
    fn a_plain_number_is_seconds() {
        assert_eq!(time("90"), time("90 s"));
        assert_eq!(time("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(at_least_a_second("2"), Ok(Duration::from_secs(2)));
    }

    #[test]
    fn what_is_no_time_says_what_to_write() {
        assert!(every("0").unwrap_err().contains("never"));
        assert!(every("0 s").is_err());
        assert!(every("soon").unwrap_err().contains("counts versions"));
        assert!(every("1.5").unwrap_err().contains("1.5 s"));
        assert!(time("-1 s").is_err() && time("-1").is_err() && time("").is_err());
        assert!(at_least_a_second("0").is_err() && at_least_a_second("2h").is_ok());
        assert!(time("1e400 s").is_err());
    }
}
