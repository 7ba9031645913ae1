//! Generates the messages and services of `tessera.v1`, and their descriptors for reflection, without a system
//! `protoc`. What the ledger shares with the API (`types.proto`, `states.proto`) is generated in the ledger's crate and
//! only referred to here, so that there is one type and one conversion of each.

#[path = "build/reasons.rs"]
mod reasons;

use std::error::Error;
use std::path::PathBuf;

const PROTO_ROOT: &str = "../../proto";
const SERVICE_FILES: [&str; 6] = [
    "tessera/v1/agent_service.proto",
    "tessera/v1/cluster_service.proto",
    "tessera/v1/job_service.proto",
    "tessera/v1/pool_service.proto",
    "tessera/v1/queue_service.proto",
    "tessera/v1/usage_service.proto",
];
const OTHER_FILES: [&str; 1] = ["tessera/v1/error_reason.proto"];
const SHARED_FILES: [&str; 2] = ["tessera/v1/types.proto", "tessera/v1/states.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO_ROOT}/tessera/v1");
    let mut compiler = protox::Compiler::new([PROTO_ROOT])?;
    compiler.include_imports(true).include_source_info(true);
    compiler.open_files(SERVICE_FILES.iter().chain(&OTHER_FILES))?;
    let descriptors = compiler.file_descriptor_set();

    let mut builder = tonic_prost_build::configure().btree_map(".").bytes(".tessera.v1");
    for file in descriptors.file.iter().filter(|file| SHARED_FILES.contains(&file.name())) {
        let messages = file.message_type.iter().map(|message| message.name());
        for name in messages.chain(file.enum_type.iter().map(|of| of.name())) {
            builder = builder.extern_path(format!(".tessera.v1.{name}"), format!("::tessera_ledger::wire::v1::{name}"));
        }
    }
    let mut messages = prost_build::Config::new();
    messages.enable_type_names();
    builder.compile_fds_with_config(descriptors.clone(), messages)?;

    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("reasons.rs"), reasons::source(&descriptors)?)?;
    std::fs::write(out.join("descriptors.binpb"), compiler.encode_file_descriptor_set())?;
    Ok(())
}
