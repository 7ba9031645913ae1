//! Generates the messages and the service of `tessera.checkpoint.v1` without a system `protoc`.

use std::error::Error;

const PROTO_ROOT: &str = "../../proto";
const PROTO_FILES: [&str; 1] = ["tessera/checkpoint/v1/checkpoint_service.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO_ROOT}/tessera/checkpoint");
    let descriptors = protox::compile(PROTO_FILES, [PROTO_ROOT])?;
    tonic_prost_build::configure().bytes(".tessera.checkpoint.v1").compile_fds(descriptors)?;
    Ok(())
}
