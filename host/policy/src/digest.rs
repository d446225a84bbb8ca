//! SHA-256 digests: how a module, a compiled artefact and a policy set are named. Nothing here reads files.

use std::{fmt, io, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::of_all([bytes])
    }

    /// The digest of several byte strings, one after another. Where their borders matter, all but one have to be of a fixed
    /// length.
    #[must_use]
    pub fn of_all<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// The digest of some bytes of fixed length, followed by what a reader yields to its end.
    pub(crate) fn of_read(before: &[&[u8; 32]], mut content: impl io::Read) -> io::Result<Self> {
        let mut hash = Sha256::new();
        before.iter().for_each(|bytes| hash.update(bytes));
        let mut piece = vec![0; 64 << 10];
        loop {
            match content.read(&mut piece)? {
                0 => return Ok(Self(hash.finalize().into())),
                read => hash.update(&piece[..read]),
            }
        }
    }

    /// The digest of what a `Hash` implementation feeds, for values that offer nothing else.
    pub(crate) fn of_hash(value: &impl std::hash::Hash) -> Self {
        struct Feed(Sha256);
        impl std::hash::Hasher for Feed {
            fn write(&mut self, bytes: &[u8]) {
                self.0.update(bytes);
            }
            fn finish(&self) -> u64 {
                0 // Never asked: the whole digest is taken instead.
            }
        }
        let mut feed = Feed(Sha256::new());
        value.hash(&mut feed);
        Self(feed.0.finalize().into())
    }

    /// The digest as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 12 digits, enough to tell modules apart in a log line.
    #[must_use]
    pub fn short(&self) -> String {
        let mut text = self.to_string();
        text.truncate(12);
        text
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{self}")
    }
}

/// Text that is no digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("A SHA-256 digest is 64 hexadecimal digits, as sha256sum prints them.")]
pub struct NotADigest;

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let hex = text.strip_prefix("sha256:").unwrap_or(text).as_bytes();
        if hex.len() != 64 || !hex.iter().all(u8::is_ascii_hexdigit) {
            return Err(NotADigest);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| NotADigest)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| NotADigest)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

    use super::*;

    #[test]
    fn a_digest_reads_back_as_it_was_written() {
        let digest = Digest::of(b"abc");
        assert_eq!(digest.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_eq!(digest.short(), "ba7816bf8f01");
    }

    #[test]
    fn what_is_no_digest_is_refused() {
        for wrong in ["", "ba78", &"g".repeat(64), &"ä".repeat(32)] {
            assert_eq!(wrong.parse::<Digest>(), Err(NotADigest));
        }
    }
}
