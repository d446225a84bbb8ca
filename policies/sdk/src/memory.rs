//! The allocator of a guest. Every call has an instance of its own, whose memory goes with it: giving anything back in between
//! is time spent on nothing.
#![allow(unsafe_code, reason = "an allocator that leaks is sound in a guest, which has one thread")]

use lol_alloc::{AssumeSingleThreaded, LeakingAllocator};

#[global_allocator]
static LEAKS: AssumeSingleThreaded<LeakingAllocator> =
    // SAFETY: A component of this contract has one thread.
    unsafe { AssumeSingleThreaded::new(LeakingAllocator::new()) };
