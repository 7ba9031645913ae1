//! The methods that a member serves, read from the API's own descriptors: what each is called, whether it streams, and
//! whether only the leader can answer it.

use std::collections::HashMap;
use std::sync::Arc;

use prost::Message;
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FileDescriptorSet};

/// Package whose services are described.
const PACKAGE: &str = "tessera.v1";

/// The field under which every mutation carries its request id.
const REQUEST_ID: (&str, i32) = ("request_id", 1);

/// Questions that only the leader can answer: its actors, or what agents tell it.
const ASKED_OF_LEADER: [&str; 7] = [
    "/tessera.v1.JobService/Why",
    "/tessera.v1.JobService/ListWaits",
    "/tessera.v1.JobService/ListUse",
    "/tessera.v1.JobService/PlanJob",
    "/tessera.v1.PoolService/StartCompaction",
    "/tessera.v1.PoolService/GetCompaction",
    "/tessera.v1.PoolService/StopCompaction",
];

/// Mutations that the asked member carries out itself: before the cluster exists, nobody leads.
const ANSWERED_HERE: [&str; 1] = ["/tessera.v1.ClusterService/InitializeCluster"];

/// The members that can answer a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answerer {
    AnyMember,
    /// The leader; it changes something, under a request id in field 1 of the request.
    LeaderMutates,
    /// The leader; it changes many things, each under a request id in field 1 of a part of the stream's messages.
    LeaderTakesStream,
    /// The leader; it changes nothing.
    LeaderReads,
}

#[derive(Debug)]
pub struct Method {
    /// Full name of its service.
    pub service: String,
    /// Its name within the service.
    pub name: String,
    /// True if requests or responses are streams.
    pub streaming: bool,
    /// True if requests are a stream.
    pub takes_stream: bool,
    pub answerer: Answerer,
}

/// All methods of the API by path.
#[derive(Clone, Debug)]
pub struct Methods {
    by_path: Arc<HashMap<String, Arc<Method>>>,
}

impl Methods {
    /// Reads the methods from the descriptors that the API crate carries.
    ///
    /// # Errors
    /// When the descriptors cannot be decoded, which a test rules out for the ones that are compiled in.
    pub fn load() -> Result<Self, prost::DecodeError> {
        let files = FileDescriptorSet::decode(tessera_api::FILE_DESCRIPTOR_SET)?;
        let messages: HashMap<String, &DescriptorProto> = files
            .file
            .iter()
            .flat_map(|file| file.message_type.iter().map(move |message| (file.package(), message)))
            .map(|(package, message)| (format!(".{package}.{}", message.name()), message))
            .collect();
        let mut by_path = HashMap::new();
        for file in files.file.iter().filter(|file| file.package() == PACKAGE) {
            for service in &file.service {
                for method in &service.method {
                    let full_name = format!("{PACKAGE}.{}", service.name());
                    let path = format!("/{full_name}/{}", method.name());
                    let carries = |message: &str| messages.get(message).is_some_and(|input| carries_request_id(input));
                    let input = messages.get(method.input_type());
                    let parts = input.into_iter().flat_map(|input| &input.field).map(|field| field.type_name());
                    let answerer = if method.client_streaming() && parts.into_iter().any(carries) {
                        Answerer::LeaderTakesStream
                    } else {
                        answerer_of(&path, carries(method.input_type()))
                    };
                    let described = Method {
                        service: full_name,
                        name: method.name().to_owned(),
                        streaming: method.client_streaming() || method.server_streaming(),
                        takes_stream: method.client_streaming(),
                        answerer,
                    };
                    by_path.insert(path, Arc::new(described));
                }
            }
        }
        Ok(Self { by_path: Arc::new(by_path) })
    }

    /// The method at a path such as `/tessera.v1.JobService/SubmitJob`.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Arc<Method>> {
        self.by_path.get(path)
    }

    /// All methods with their paths, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<Method>)> {
        self.by_path.iter().map(|(path, method)| (path.as_str(), method))
    }
}

fn carries_request_id(input: &DescriptorProto) -> bool {
    input.field.iter().any(|field| (field.name(), field.number()) == REQUEST_ID && field.r#type() == Type::String)
}

fn answerer_of(path: &str, mutates: bool) -> Answerer {
    if ASKED_OF_LEADER.contains(&path) {
        Answerer::LeaderReads
    } else if mutates && !ANSWERED_HERE.contains(&path) {
        Answerer::LeaderMutates
    } else {
        Answerer::AnyMember
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answerer(path: &str) -> Answerer {
        Methods::load().expect("descriptors decode").get(path).expect("method exists").answerer
    }

    #[test]
    fn mutations_go_to_the_leader_and_reads_stay() {
        assert_eq!(answerer("/tessera.v1.JobService/SubmitJob"), Answerer::LeaderMutates);
        assert_eq!(answerer("/tessera.v1.PoolService/DrainNode"), Answerer::LeaderMutates);
        assert_eq!(answerer("/tessera.v1.QueueService/SetQueue"), Answerer::LeaderMutates);
        assert_eq!(answerer("/tessera.v1.ClusterService/AddMember"), Answerer::LeaderMutates);
        assert_eq!(answerer("/tessera.v1.ClusterService/InitializeCluster"), Answerer::AnyMember);
        assert_eq!(answerer("/tessera.v1.JobService/Why"), Answerer::LeaderReads);
        assert_eq!(answerer("/tessera.v1.JobService/GetJob"), Answerer::AnyMember);
        assert_eq!(answerer("/tessera.v1.AgentService/Session"), Answerer::AnyMember);
        assert_eq!(answerer("/tessera.v1.JobService/SubmitJobs"), Answerer::LeaderTakesStream);
    }

    #[test]
    fn a_field_named_request_id_is_always_field_one() {
        let files = FileDescriptorSet::decode(tessera_api::FILE_DESCRIPTOR_SET).expect("descriptors decode");
        for message in files.file.iter().flat_map(|file| &file.message_type) {
            let misplaced = message.field.iter().any(|field| {
                field.name() == REQUEST_ID.0 && field.number() != REQUEST_ID.1 && message.name().ends_with("Request")
            });
            assert!(!misplaced, "{} carries its request id elsewhere", message.name());
        }
    }

    #[test]
    fn streams_are_known() {
        let methods = Methods::load().expect("descriptors decode");
        let streaming = |path: &str| methods.get(path).is_some_and(|method| method.streaming);
        assert!(streaming("/tessera.v1.JobService/WatchJobs") && streaming("/tessera.v1.AgentService/Session"));
        assert!(!streaming("/tessera.v1.JobService/SubmitJob"));
        assert!(methods.iter().count() >= 40);
    }
}
