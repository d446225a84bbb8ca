//! The allocator of a guest. Every call has an instance of its own, whose memory goes with it: giving anything back in between
//! is time spent on nothing, and so is asking the host for more than there is from the start. No library has an allocator
//! that begins in memory that the module brings and goes on in memory that it grows.
#![allow(unsafe_code, reason = "an allocator hands out raw memory")]

use std::{
    alloc::{GlobalAlloc, Layout},
    arch::wasm32::memory_grow,
    cell::{Cell, UnsafeCell},
    ptr::null_mut,
};

const PAGE: usize = 1 << 16;
/// What a module brings, and the least that it grows by. Pages of it that nothing touches cost nothing.
const ARENA: usize = 4 * PAGE;

#[global_allocator]
static BUMP: Bump = Bump { first: UnsafeCell::new([0; ARENA]), free: Cell::new((0, 0)) };

/// Hands out one piece after the other.
struct Bump {
    first: UnsafeCell<[u8; ARENA]>,
    /// From where to where memory is free; (0, 0) before the first piece.
    free: Cell<(usize, usize)>,
}

// SAFETY: A component of this contract has one thread.
unsafe impl Sync for Bump {}

impl Bump {
    /// Room for so many bytes, if the host grants it.
    fn take(&self, size: usize, align: usize) -> Option<usize> {
        let (mut from, mut end) = self.free.get();
        if end == 0 {
            from = self.first.get().addr();
            end = from + ARENA;
        }
        let mut at = from.checked_next_multiple_of(align)?;
        let mut next = at.checked_add(size)?;
        if next > end {
            let pages = size.checked_add(align)?.max(ARENA).div_ceil(PAGE);
            let grown = memory_grow(0, pages);
            if grown == usize::MAX {
                return None;
            }
            // Behind what there was, unless a library of the guest has grown the memory for itself.
            if grown * PAGE != end {
                at = (grown * PAGE).checked_next_multiple_of(align)?;
                next = at.checked_add(size)?;
            }
            // In a memory of 4 GiB the last byte has no end.
            end = grown.checked_add(pages)?.checked_mul(PAGE)?;
        }
        self.free.set((next, end));
        Some(at)
    }
}

// SAFETY: `take` gives out no byte twice, and each piece is as large and as aligned as asked for.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.take(layout.size(), layout.align()).map_or(null_mut(), |at| at as *mut u8)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // Nothing is given out twice, and WebAssembly's memory begins as zeros.
        // SAFETY: As the caller has it.
        unsafe { self.alloc(layout) }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}

    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (from, end) = self.free.get();
        // The last piece grows where it is, as a text does that is being written.
        if piece.addr() + layout.size() == from && size >= layout.size() && size - layout.size() <= end - from {
            self.free.set((piece.addr() + size, end));
            return piece;
        }
        if size <= layout.size() {
            return piece;
        }
        let Some(at) = self.take(size, layout.align()) else { return null_mut() };
        // SAFETY: The new piece is larger than the old one, and they don't overlap.
        unsafe { piece.copy_to_nonoverlapping(at as *mut u8, layout.size()) };
        at as *mut u8
    }
}
