//! The address at which the others look for a member, beside the one that it was started to be at.

use tessera_client::Address;
use tessera_consensus::{MemberId, Status};
use tokio::sync::watch;

/// A member that was started to be reached elsewhere than the others look for it. It may be found there all the same:
/// then it goes on, and nobody needs to know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the others look for it at {known}, and it was started to be reached at {given}; unless {known} leads here, start \
     it with --advertise {known}, or, when it is to be elsewhere for good, remove it with `tessera cluster member \
     remove {id}`, empty its data folder and add it anew"
)]
pub struct Elsewhere {
    pub id: MemberId,
    /// The address at which the others look for it.
    pub known: String,
    /// The address that it was started with.
    pub given: String,
}

impl Elsewhere {
    /// Compares what the others know with the address that a member was started with: only another port tells, for a
    /// host that is called otherwise may be the same one, and nobody looks for the only voter.
    pub(crate) fn of(status: &Status, given: &str) -> Option<Self> {
        let port = |address: &str| address.parse::<Address>().ok().map(|address| address.port());
        let known = status.member(status.id)?.address.as_str();
        let alone = status.voters.iter().all(|voter| voter.id == status.id);
        let elsewhere = !alone && port(known).is_some() && port(known) != port(given);
        elsewhere.then(|| Self { id: status.id, known: known.to_owned(), given: given.to_owned() })
    }
}

/// Says so, once the member knows where the others look for it.
pub(crate) async fn tell(mut status: watch::Receiver<Status>, given: String) {
    // The only voter may come to have company.
    let Ok(status) = status.wait_for(|status| Elsewhere::of(status, &given).is_some()).await else { return };
    if let Some(elsewhere) = Elsewhere::of(&status, &given) {
        tracing::error!("this is member {}: {elsewhere}", status.id);
    }
}

#[cfg(test)]
mod tests {
    use tessera_consensus::Member;

    use super::*;

    fn member(id: u64, port: u16) -> Member {
        Member { id: MemberId(id), address: format!("10.0.0.{id}:{port}"), ..Member::default() }
    }

    #[test]
    fn only_who_is_looked_for_at_another_port_is_elsewhere() {
        let (one, two) = ([member(1, 7400)], [member(2, 7400)]);
        let both = [one.clone(), two.clone()].concat();
        let of = |voters: &[Member], learners: &[Member], given: &str| {
            let (voters, learners) = (voters.to_vec(), learners.to_vec());
            let status = Status { voters, learners, ..Status::new(MemberId(1), true) };
            Elsewhere::of(&status, given).map(|elsewhere| elsewhere.known)
        };
        assert_eq!(of(&both, &[], "10.0.0.1:7500").as_deref(), Some("10.0.0.1:7400"));
        assert_eq!(of(&two, &one, "10.0.0.1:7500").as_deref(), Some("10.0.0.1:7400"), "a member without a vote, too");
        assert_eq!(of(&both, &[], "node-1:7400"), None, "another name of the same host");
        assert_eq!(of(&one, &[], "10.0.0.1:7500"), None, "nobody else looks for it");
        assert_eq!(of(&two, &[], "10.0.0.1:7500"), None, "it is not known where");
    }
}
