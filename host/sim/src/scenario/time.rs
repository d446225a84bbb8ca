//! Lengths of virtual time as they stand in a scenario: `500ms`, `5s`, `1m30s`.

use std::fmt;
use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer, de};

/// A length of virtual time, or a moment as the time since the start of the run. Not longer than a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

const LONGEST: Duration = Duration::from_secs(24 * 3600);

impl Time {
    /// So many seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl std::str::FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hint = "write a length of time with its units, such as `500ms`, `5s` or `1m30s`";
        let signed: SignedDuration = text.parse().map_err(|_| format!("`{text}` is no length of time: {hint}"))?;
        let length = Duration::try_from(signed).map_err(|_| format!("`{text}` is negative: {hint}"))?;
        if length > LONGEST {
            return Err(format!("`{text}` is longer than the 24 hours that a scenario may take"));
        }
        Ok(Self(length))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        match self.0.as_secs() {
            0..60 => write!(f, "{seconds:.3} s"),
            whole => write!(f, "{} min {:06.3} s", whole / 60, seconds - (whole / 60 * 60) as f64),
        }
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]
    use super::*;

    #[test]
    fn units_are_needed_and_the_past_is_refused() {
        for (text, wanted) in [("500ms", 500), ("5s", 5_000), ("1m30s", 90_000), ("2h", 7_200_000)] {
            assert_eq!(text.parse::<Time>().unwrap().0.as_millis(), wanted, "{text}");
        }
        for text in ["5", "", "-5s", "soon", "25h"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_printed_to_the_millisecond() {
        assert_eq!(Time(Duration::from_millis(1_250)).to_string(), "1.250 s");
        assert_eq!(Time(Duration::from_millis(61_007)).to_string(), "1 min 01.007 s");
    }
}
