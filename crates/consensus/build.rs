//! Generates the wire and disk messages of `tessera.raft.v1` without a system `protoc`.

use std::error::Error;

const PROTO_ROOT: &str = "../../proto";
const PROTO_FILES: [&str; 2] = ["tessera/raft/v1/log.proto", "tessera/raft/v1/raft_service.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO_ROOT}/tessera/raft");
    let descriptors = protox::compile(PROTO_FILES, [PROTO_ROOT])?;
    tonic_prost_build::configure().bytes(".tessera.raft.v1").compile_fds(descriptors)?;
    Ok(())
}
