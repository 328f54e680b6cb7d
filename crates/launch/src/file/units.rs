//! Sizes with units: `1 GiB`, `512MiB`, `1.5 GB`, `4096`.

const UNITS: [(&str, u64); 10] = [
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("", 1),
];

/// Reads a size in bytes. The error has two texts: the problem, and a hint how to write a size.
pub fn size(text: &str) -> Result<u64, (String, String)> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (digits, unit) = (&text[..split], text[split..].trim());
    let example = || "write a number and a unit: `512 MiB`, `1 GiB`, `2 GB`".to_owned();
    if digits.is_empty() {
        let what = if text.starts_with('-') { "a size cannot be negative" } else { "this is not a size" };
        return Err((format!("{what}: `{text}`"), example()));
    }
    let Some((_, factor)) = UNITS.iter().find(|(u, _)| u.eq_ignore_ascii_case(unit)) else {
        let hint = match unit.to_ascii_uppercase().as_str() {
            u @ ("K" | "M" | "G" | "T") => {
                format!("say `{digits} {u}iB` (powers of 1024) or `{digits} {u}B` (powers of 1000)")
            }
            _ => "units are B, KiB, MiB, GiB, TiB (powers of 1024) and KB, MB, GB, TB (powers of 1000)".to_owned(),
        };
        return Err((format!("unknown unit `{unit}` in `{text}`"), hint));
    };
    let bytes = match digits.parse::<u64>() {
        Ok(n) => n.checked_mul(*factor),
        // The number has a fraction. `f64` is exact enough for a size, and the range is checked before the cast.
        Err(_) => match digits.parse::<f64>() {
            Ok(x) if x * (*factor as f64) < i64::MAX as f64 => Some((x * (*factor as f64)).round() as u64),
            Ok(_) => None,
            Err(_) => return Err((format!("`{digits}` is not a number"), example())),
        },
    };
    match bytes {
        Some(n) if n <= i64::MAX as u64 => Ok(n),
        _ => Err((format!("`{text}` is more than any machine has"), example())),
    }
}

/// Writes a number of bytes for people, in the largest unit in which the number stays short.
pub fn show(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 || unit == "TiB" {
            return if unit == "B" || value.fract() == 0.0 {
                format!("{value:.0} {unit}")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1024.0;
    }
    unreachable!("the loop ends with TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_a_space() {
        assert_eq!(size("1 GiB"), Ok(1 << 30));
        assert_eq!(size("512MiB"), Ok(512 << 20));
        assert_eq!(size("1.5 GB"), Ok(1_500_000_000));
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("2kib"), Ok(2048));
    }

    #[test]
    fn bad_sizes_say_what_to_write() {
        assert!(size("1 G").unwrap_err().1.contains("1 GiB"));
        assert!(size("-1 GiB").unwrap_err().0.contains("negative"));
        assert!(size("many").is_err());
        assert!(size("1.2.3 MiB").is_err());
        assert!(size("99999999 TiB").is_err());
        assert!(size("").is_err());
    }

    #[test]
    fn shown_sizes_are_short() {
        assert_eq!(show(0), "0 B");
        assert_eq!(show(1536), "1.5 KiB");
        assert_eq!(show(1 << 30), "1 GiB");
    }
}
