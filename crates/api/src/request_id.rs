//! Request ids: the UUID under which a mutation is made once (law L3), and the hash by which the same id with another
//! content is noticed.

use prost::Message;
use tessera_ledger::{RequestId, RequestKey};
use uuid::Uuid;
use xxhash_rust::xxh3::Xxh3;

use crate::error::Refusal;
use crate::v1;

/// A request that changes something.
pub trait Mutation: Message + Clone + Default {
    /// Its name, which goes into the hash: two kinds of requests never have the same content.
    const NAME: &'static str;

    /// The caller's name for the mutation.
    fn request_id(&self) -> &str;

    /// The place of that name.
    fn request_id_mut(&mut self) -> &mut String;
}

macro_rules! mutations {
    ($($message:ident),* $(,)?) => {
        $(impl Mutation for v1::$message {
            const NAME: &'static str = stringify!($message);

            fn request_id(&self) -> &str {
                &self.request_id
            }

            fn request_id_mut(&mut self) -> &mut String {
                &mut self.request_id
            }
        })*
    };
}

mutations!(
    SubmitJobRequest,
    CancelJobRequest,
    HoldJobRequest,
    ReleaseJobRequest,
    SuspendJobRequest,
    ResumeJobRequest,
    MoveJobRequest,
    CordonNodeRequest,
    UncordonNodeRequest,
    DrainNodeRequest,
    ForgetNodeRequest,
    ConfirmStoppedRequest,
    SetPoolConfigRequest,
    SetQueueRequest,
    RemoveQueueRequest,
    InitializeClusterRequest,
    AddMemberRequest,
    PromoteMemberRequest,
    RemoveMemberRequest,
    TransferLeadershipRequest,
);

/// Reads a request id.
///
/// # Errors
/// A [`Refusal`] with REQUEST_ID_INVALID when it is missing or no UUID.
pub fn request_id(text: &str) -> Result<RequestId, Refusal> {
    let refuse = |problem: &str| Err(Refusal::new(v1::ErrorReason::RequestIdInvalid, problem));
    if text.is_empty() {
        return refuse(
            "request_id: must be set to a UUID, a new one for each mutation and the same one for its retries",
        );
    }
    match Uuid::try_parse(text) {
        Ok(uuid) if !uuid.is_nil() => Ok(RequestId(uuid.as_u128())),
        Ok(_) => refuse("request_id: must not be the nil UUID; make a new one for each mutation"),
        Err(_) => refuse("request_id: must be a UUID such as 7f3c1a52-6f0e-4a53-9d7b-0c2f8e1d4b6a"),
    }
}

/// The request id as text.
#[must_use]
pub fn request_id_text(id: RequestId) -> String {
    Uuid::from_u128(id.0).to_string()
}

/// The name of a mutation with the hash of its content.
///
/// # Errors
/// A [`Refusal`] with REQUEST_ID_INVALID when the id is missing or no UUID.
pub fn request_key<M: Mutation>(request: &M) -> Result<RequestKey, Refusal> {
    let id = request_id(request.request_id())?;
    let mut content = request.clone();
    content.request_id_mut().clear();
    let mut hasher = Xxh3::new();
    hasher.update(M::NAME.as_bytes());
    hasher.update(&[0]);
    hasher.update(&content.encode_to_vec());
    Ok(RequestKey { id, fingerprint: hasher.digest() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::ErrorReason;

    const ID: &str = "7f3c1a52-6f0e-4a53-9d7b-0c2f8e1d4b6a";

    #[test]
    fn an_id_is_a_uuid_and_read_back_as_such() {
        assert_eq!(request_id_text(request_id(ID).expect("a UUID")), ID);
        for bad in ["", "7", "7f3c1a52", "00000000-0000-0000-0000-000000000000", &"f".repeat(100_000)] {
            let refusal = request_id(bad).expect_err("no UUID of a mutation");
            assert_eq!(refusal.reason(), ErrorReason::RequestIdInvalid);
            assert!(refusal.message().len() < 200, "{refusal}");
        }
    }

    #[test]
    fn the_same_content_has_the_same_key_and_another_content_another() {
        let request_id = ID.to_owned();
        let cancel = |job_id| v1::CancelJobRequest { request_id: request_id.clone(), job_id };
        let hold = v1::HoldJobRequest { request_id: request_id.clone(), job_id: 1 };
        let key = request_key(&cancel(1)).expect("a UUID");
        assert_eq!(request_key(&cancel(1)).expect("a UUID"), key);
        assert_ne!(request_key(&cancel(2)).expect("a UUID").fingerprint, key.fingerprint);
        assert_ne!(request_key(&hold).expect("a UUID").fingerprint, key.fingerprint, "another kind of request");
        let again = v1::CancelJobRequest { request_id: ID.replace('7', "8"), job_id: 1 };
        assert_eq!(request_key(&again).expect("a UUID").fingerprint, key.fingerprint, "the id is no content");
    }
}
