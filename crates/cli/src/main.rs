//! The program `tessera`; everything is in the library beside it.

fn main() -> std::process::ExitCode {
    tessera_cli::main()
}
