//! etcd as it is measured: three members at given times, and a client that puts.

mod client;
mod members;

pub use client::{Put, PutAck, Putter, size_of_value};
pub use members::{Etcd, Times};

/// Generated from `proto/etcd.proto`.
#[allow(clippy::all)]
pub mod wire {
    tonic::include_proto!("etcdserverpb");
}
