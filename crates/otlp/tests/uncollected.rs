//! As long as nobody collects, looking whether anybody does allocates nothing: submissions do it several times each.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tessera_otlp::span::current;
use tessera_otlp::{Draft, Span, SpanIdentity};

/// The system's allocator, counting what this thread takes.
struct Counting;

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: it hands everything on to the system's allocator; the counter is a plain cell that is made
// without allocating.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.set(TAKEN.get() + 1);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn nothing_is_allocated_for_spans_that_nobody_collects() {
    const CONTEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let identity = SpanIdentity::of("run", &[1, 2, 3]);
    let before = TAKEN.get();
    for _ in 0..1_000 {
        assert!(Span::of_call("/tessera.v1.JobService/SubmitJob", Some(CONTEXT)).is_none());
        assert!(Span::here("submit").is_none() && current().is_none());
        assert!(Draft::following("place", CONTEXT).is_none());
        assert!(identity.traceparent(CONTEXT).is_none());
    }
    assert_eq!(TAKEN.get(), before);
    let boxed = std::hint::black_box(Box::new(1));
    assert_eq!((TAKEN.get(), *boxed), (before + 1, 1), "the counter counts");
}
