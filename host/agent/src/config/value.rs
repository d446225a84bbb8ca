//! The small types of configuration values that people write with a unit: lengths of time, sizes, API versions, addresses.
//! A value of one of these types has been checked; a wrong one never gets that far.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time, written `500ms`, `30s`, `5m` or `1h 30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period(Duration);

impl Period {
    /// From milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// From seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    /// From minutes.
    pub const fn from_minutes(minutes: u64) -> Self {
        Self::from_secs(minutes * 60)
    }

    /// The length of time as the standard library knows it.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl FromStr for Period {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let signed: jiff::SignedDuration = text.trim().parse().map_err(drop)?;
        Duration::try_from(signed).map(Self).map_err(drop)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::SignedDuration::try_from(self.0) {
            Ok(signed) => write!(f, "{signed:#}"),
            Err(_) => write!(f, "{}s", self.0.as_secs()),
        }
    }
}

/// A number of bytes, written `512KiB`, `16MiB` or `1GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(u64);

const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl Size {
    /// So many bytes.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// From kibibytes.
    pub const fn from_kib(kib: u64) -> Self {
        Self(kib << 10)
    }

    /// From mebibytes.
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The number of bytes as a length in memory, for use as a cap.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for Size {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let text = text.trim();
        let (number, unit) = UNITS.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit))).ok_or(())?;
        let number: u64 = number.trim_end().parse().map_err(drop)?;
        number.checked_mul(*unit).map(Self).ok_or(())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS.iter().find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit));
        let (name, unit) = whole.unwrap_or(&("B", 1));
        write!(f, "{}{name}", self.0 / unit)
    }
}

/// Group and version of a Kubernetes API, written `group/version` as in an object's `apiVersion`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiVersion {
    /// The group, such as `unbounded-cloud.io`.
    pub group: String,
    /// The version, such as `v1alpha3`.
    pub version: String,
}

impl ApiVersion {
    /// From a group and a version that are known to be good.
    pub(super) fn new(group: &str, version: &str) -> Self {
        Self { group: group.to_owned(), version: version.to_owned() }
    }
}

impl FromStr for ApiVersion {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (group, version) = text.split_once('/').ok_or(())?;
        let label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let version_is_good = version.starts_with('v') && version.len() > 1 && version.chars().all(label);
        if is_dns_name(group) && version_is_good { Ok(Self::new(group, version)) } else { Err(()) }
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group, self.version)
    }
}

/// Whether a text is a DNS subdomain as Kubernetes wants it in names.
pub(super) fn is_dns_name(text: &str) -> bool {
    let label_is_good = |label: &str| {
        let edge = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        label.len() <= 63
            && edge(label.bytes().next())
            && edge(label.bytes().last())
            && label.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
    };
    text.len() <= 253 && text.split('.').all(label_is_good)
}

const PERIOD: &str = "a length of time such as `500ms`, `30s` or `5m`";
const SIZE: &str = "a size such as `512KiB` or `16MiB`";
const API_VERSION: &str = "an API group and version such as `unbounded-cloud.io/v1alpha3`";
const NETWORK: &str = "a network such as `10.0.0.0/8` or `fd00::/48`";
const ADDRESS: &str = "an IP address and a port such as `127.0.0.1:9998` or `[::1]:9998`";

/// Reads a text and parses it, or says what was expected, with an example.
fn parse<'de, T: FromStr, D: Deserializer<'de>>(deserializer: D, expected: &str) -> Result<T, D::Error> {
    struct Text<'a>(&'a str);
    impl serde::de::Visitor<'_> for Text<'_> {
        type Value = String;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
        fn visit_str<E>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }
    }
    let text = deserializer.deserialize_str(Text(expected))?;
    text.parse().map_err(|_| D::Error::invalid_value(Unexpected::Str(&text), &expected))
}

macro_rules! written_as_text {
    ($type:ident, $expected:expr, $schema:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                parse(deserializer, $expected)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}

written_as_text!(
    Period,
    PERIOD,
    json_schema!({ "type": "string", "description": PERIOD, "examples": ["500ms", "30s", "5m", "1h 30m"] })
);
written_as_text!(
    Size,
    SIZE,
    json_schema!({ "type": "string", "description": SIZE, "pattern": "^[0-9]+ *(B|KiB|MiB|GiB)$" })
);
written_as_text!(
    ApiVersion,
    API_VERSION,
    json_schema!({ "type": "string", "description": API_VERSION, "pattern": "^[a-z0-9.-]+/v[a-z0-9]+$" })
);

/// Reads and writes a network, with an error that shows an example.
pub(super) mod network {
    use super::{Deserializer, NETWORK, Serializer, parse};
    use ipnet::IpNet;

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IpNet, D::Error> {
        parse(deserializer, NETWORK)
    }

    pub(in crate::config) fn serialize<S: Serializer>(network: &IpNet, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(network)
    }
}

/// Reads and writes what may be absent, with an error that shows an example.
macro_rules! optional_text {
    ($name:ident, $type:ty, $expected:expr) => {
        pub(super) mod $name {
            use super::{Deserialize, Deserializer, Serializer, parse};

            #[derive(Deserialize)]
            #[serde(transparent)]
            struct Given(#[serde(deserialize_with = "given")] $type);

            fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                parse(deserializer, $expected)
            }

            pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Option<$type>, D::Error> {
                Ok(Option::<Given>::deserialize(deserializer)?.map(|given| given.0))
            }

            pub(in crate::config) fn serialize<S: Serializer>(
                value: &Option<$type>,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                match value {
                    Some(value) => serializer.collect_str(value),
                    None => serializer.serialize_none(),
                }
            }
        }
    };
}

optional_text!(optional_address, std::net::SocketAddr, super::ADDRESS);
optional_text!(optional_network, ipnet::IpNet, super::NETWORK);
