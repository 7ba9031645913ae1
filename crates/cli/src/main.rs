//! The program `tessera`; everything is in the library beside it.

/// A member allocates all day long from a few threads; glibc's allocator gives it up to a third less throughput,
/// because it grows the heaps of threads page by page.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    tessera_cli::main()
}
