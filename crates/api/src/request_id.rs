//! Request ids: the UUID under which a mutation is made once (law L3), and the hash by which the same id with another
//! content is noticed.

use prost::{Message, length_delimiter_len};
use tessera_ledger::{LogTime, RequestId, RequestKey};
use uuid::{NoContext, Timestamp, Uuid};
use xxhash_rust::xxh3::Xxh3;

use crate::error::{REQUEST_FLOOR, Refusal};
use crate::{limits, v1};

/// A request that changes something.
pub trait Mutation: Message + Clone + Default {
    /// Its name, which goes into the hash: two kinds of requests never have the same content.
    const NAME: &'static str;

    /// The caller's name for the mutation.
    fn request_id(&self) -> &str;
}

macro_rules! mutations {
    ($($message:ident),* $(,)?) => {
        $(impl Mutation for v1::$message {
            const NAME: &'static str = stringify!($message);

            fn request_id(&self) -> &str {
                &self.request_id
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
/// A [`Refusal`] with REQUEST_ID_INVALID when it is missing or no UUID of version 7.
pub fn request_id(text: &str) -> Result<RequestId, Refusal> {
    let refuse = |problem: &str| Err(Refusal::new(v1::ErrorReason::RequestIdInvalid, problem));
    if text.is_empty() {
        return refuse(
            "request_id: must be set to a UUID, a new one for each mutation and the same one for its retries",
        );
    }
    match Uuid::try_parse(text) {
        Ok(uuid) if uuid.get_version_num() == 7 => Ok(RequestId(uuid.as_u128())),
        Ok(_) => refuse(
            "request_id: must be a UUID of version 7, which says when it was made, so that one that is sent again after it was \
             forgotten is known to be old; such as 019a2f6e-9d00-7c1e-8f6b-1b6f2f1d9c11",
        ),
        Err(_) => refuse("request_id: must be a UUID of version 7, such as 019a2f6e-9d00-7c1e-8f6b-1b6f2f1d9c11"),
    }
}

/// A new request id, for a request that came without one: made at that time.
#[must_use]
pub fn new_request_id(now: LogTime) -> String {
    let nanos = u32::try_from(now.0 % 1_000 * 1_000_000).unwrap_or_default();
    Uuid::new_v7(Timestamp::from_unix(NoContext, now.0 / 1_000, nanos)).to_string()
}

/// Refuses an id of which nobody can know whether it was answered before (law L3): it is not remembered, and was made
/// no later than one that was forgotten. Refuses one from the future too, by what clocks agree on: once forgotten, it
/// would make all that are made before it look old. A floor that is in the future itself was made by clocks that were
/// wrong; it is not kept to.
///
/// # Errors
/// A [`Refusal`] with REQUEST_TOO_OLD or REQUEST_FROM_FUTURE.
pub fn check_age(id: RequestId, floor: LogTime, now: LogTime) -> Result<(), Refusal> {
    let Some(made) = id.made_at() else { return Ok(()) };
    let latest = now.after(limits::REQUEST_AHEAD);
    let shown = |time: LogTime| crate::time::timestamp(time).to_string();
    if made > latest {
        let text = format!(
            "the request id says that it was made at {}, and it is {}: set the clock of the machine that made it right, or make \
             the id by another one, and send the request with a new id; nothing was changed",
            shown(made),
            shown(now)
        );
        return Err(Refusal::new(v1::ErrorReason::RequestFromFuture, text));
    }
    if made > floor || floor > latest {
        return Ok(());
    }
    let text = format!(
        "the request id was made at {}, and ids made until {} are forgotten: whether this request was carried out before is not \
         known, and it was not carried out now; look whether it was, and if not send it with a new id (if that is refused as well, \
         set the clock of the machine that makes ids right)",
        shown(made),
        shown(floor)
    );
    Err(Refusal::new(v1::ErrorReason::RequestTooOld, text).with(REQUEST_FLOOR, shown(floor)))
}

#[must_use]
pub fn request_id_text(id: RequestId) -> String {
    Uuid::from_u128(id.0).to_string()
}

/// The content of an encoded mutation without its id, which is `id` bytes long: the id is field 1 of every mutation, so
/// it comes first.
fn content_of(encoded: &[u8], id: usize) -> &[u8] {
    let field = 1 + length_delimiter_len(id) + id;
    encoded.get(field..).unwrap_or_default()
}

/// The name of a mutation with the hash of its content.
///
/// # Errors
/// A [`Refusal`] with REQUEST_ID_INVALID when the id is missing or no UUID of version 7.
pub fn request_key<M: Mutation>(request: &M) -> Result<RequestKey, Refusal> {
    let id = request_id(request.request_id())?;
    let encoded = request.encode_to_vec();
    let mut hasher = Xxh3::new();
    hasher.update(M::NAME.as_bytes());
    hasher.update(&[0]);
    hasher.update(content_of(&encoded, request.request_id().len()));
    Ok(RequestKey { id, fingerprint: hasher.digest() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::ErrorReason;

    const ID: &str = "019a2f6e-9d00-7c1e-8f6b-1b6f2f1d9c11";

    #[test]
    fn an_id_is_a_uuid_and_read_back_as_such() {
        assert_eq!(request_id_text(request_id(ID).expect("a UUID")), ID);
        for bad in [
            "",
            "7",
            "7f3c1a52",
            "7f3c1a52-6f0e-4a53-9d7b-0c2f8e1d4b6a",
            "00000000-0000-0000-0000-000000000000",
            &"f".repeat(100_000),
        ] {
            let refusal = request_id(bad).expect_err("no UUID of a mutation");
            assert_eq!(refusal.reason(), ErrorReason::RequestIdInvalid);
            assert!(refusal.message().len() < 300, "{refusal}");
        }
    }

    #[test]
    fn an_id_of_which_nobody_knows_whether_it_was_answered_is_refused() {
        let now = LogTime(1_790_000_000_000);
        let made = |ms: u64| request_id(&new_request_id(LogTime(ms))).expect("of version 7");
        let check = |ms, floor| check_age(made(ms), LogTime(floor), now).map_err(|refusal| refusal.reason());
        assert_eq!(made(now.0).made_at(), Some(now));
        assert_eq!(check(now.0, 0), Ok(()), "nothing was forgotten yet");
        assert_eq!(check(now.0 - 5, now.0 - 6), Ok(()));
        assert_eq!(check(now.0 - 6, now.0 - 6), Err(ErrorReason::RequestTooOld));
        assert_eq!(check(1, now.0 - 6), Err(ErrorReason::RequestTooOld), "a clock that is far behind");
        assert_eq!(check(now.0 + 100_000, 0), Ok(()), "clocks differ a little");
        assert_eq!(check(now.0 + 130_000, 0), Err(ErrorReason::RequestFromFuture));
        assert_eq!(check(now.0, now.0 + 130_000), Ok(()), "a floor in the future locks nobody out");
        let refusal = check_age(made(5), LogTime(now.0), now).expect_err("old");
        assert!(refusal.message().contains("2026-09-21T"), "it names the floor: {refusal}");
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
        let again = v1::CancelJobRequest { request_id: ID.replace(&ID[ID.len() - 1..], "f"), job_id: 1 };
        assert_eq!(request_key(&again).expect("a UUID").fingerprint, key.fingerprint, "the id is no content");
        let without_id = v1::CancelJobRequest { request_id: String::new(), job_id: 1 }.encode_to_vec();
        assert_eq!(content_of(&cancel(1).encode_to_vec(), ID.len()), without_id);
    }
}
