//! Generates the messages that the ledger shares with the API, and those of the log and of snapshots, without a system
//! `protoc`.

use std::error::Error;

const PROTO_ROOT: &str = "../../proto";
const PROTO_FILES: [&str; 4] = [
    "tessera/v1/types.proto",
    "tessera/v1/states.proto",
    "tessera/ledger/v1/command.proto",
    "tessera/ledger/v1/snapshot.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    for file in PROTO_FILES {
        println!("cargo:rerun-if-changed={PROTO_ROOT}/{file}");
    }
    let descriptors = protox::compile(PROTO_FILES, [PROTO_ROOT])?;
    prost_build::Config::new().btree_map(["."]).enable_type_names().compile_fds(descriptors)?;
    Ok(())
}
