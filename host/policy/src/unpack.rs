//! Compressed components: a ConfigMap holds a mebibyte, and some toolchains make more than that. What comes out is capped, so
//! that a few bytes can't become a memory full.

use std::{borrow::Cow, io::Read};

use flate2::bufread::GzDecoder;
use ruzstd::decoding::StreamingDecoder;

use crate::LoadFault;

/// The component itself, of at most `limit` bytes.
pub(crate) fn unpack(bytes: &[u8], limit: usize) -> Result<Cow<'_, [u8]>, LoadFault> {
    let too_large = |packed| LoadFault::TooLarge { packed, limit };
    if bytes.len() > limit {
        return Err(too_large(false));
    }
    let (format, unpacked) = match bytes {
        [0x1f, 0x8b, ..] => ("gzip", gzip(bytes, limit)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => ("zstd", zstd(bytes, limit)),
        _ => return Ok(Cow::Borrowed(bytes)),
    };
    match unpacked {
        Ok((unpacked, _)) if unpacked.len() > limit => Err(too_large(true)),
        // What follows would be ignored, and whoever made the file meant it to be part of it.
        Ok((_, rest)) if rest > 0 => Err(LoadFault::Packed { format, why: format!("{rest} bytes follow its end") }),
        Ok((unpacked, _)) => Ok(Cow::Owned(unpacked)),
        Err(why) => Err(LoadFault::Packed { format, why }),
    }
}

fn gzip(bytes: &[u8], limit: usize) -> Result<(Vec<u8>, usize), String> {
    let mut decoder = GzDecoder::new(bytes);
    let unpacked = read(&mut decoder, limit)?;
    Ok((unpacked, decoder.into_inner().len()))
}

fn zstd(mut bytes: &[u8], limit: usize) -> Result<(Vec<u8>, usize), String> {
    let mut decoder = StreamingDecoder::new(&mut bytes).map_err(|error| error.to_string())?;
    let unpacked = read(&mut decoder, limit)?;
    // The decoder leaves it to its caller to compare them, once the end was reached.
    let frame = &decoder.decoder;
    if unpacked.len() <= limit
        && frame.get_checksum_from_data().is_some_and(|said| Some(said) != frame.get_calculated_checksum())
    {
        return Err("its checksum doesn't agree with its content".into());
    }
    drop(decoder);
    Ok((unpacked, bytes.len()))
}

/// Reads one byte more than allowed, at most.
fn read(decoder: impl Read, limit: usize) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::new();
    let cap = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    decoder.take(cap).read_to_end(&mut unpacked).map_err(|error| error.to_string())?;
    Ok(unpacked)
}
