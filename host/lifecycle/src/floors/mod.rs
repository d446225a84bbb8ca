//! What the host holds to whatever a verdict says. Pure functions: a verdict goes in, and it comes out whole or refused
//! with the reason.

mod assignment;
mod cni;
mod record;

pub(crate) use assignment::{assignment_problem, change};
pub(crate) use cni::conflist;
pub use record::ACKNOWLEDGMENT_KEY;
pub(crate) use record::{Record, annotations_problem, record, recorded_assignment};
