//! The address at which the others look for a member, beside the one that it was started to be at.

use tessera_client::Address;
use tessera_consensus::{Identity, Status};
use tokio::sync::watch;

/// Says so, once the member knows where the others look for it, when that is another port than it was started to be
/// reached at. It may be found there all the same, and goes on.
pub async fn tell(mut status: watch::Receiver<Status>, identity: Identity, given: String) {
    // The only voter may come to have company.
    let Ok(status) = status.wait_for(|status| elsewhere(status, &given).is_some()).await else { return };
    if let Some(known) = elsewhere(&status, &given) {
        tracing::error!(
            known,
            given,
            "this is {identity}, which the others look for at {known}, and it was started to be reached at {given}; \
             unless {known} leads here, start it with --advertise {known}, or, when it is to be elsewhere for good, \
             remove it from the cluster, empty its data folder and add it anew"
        );
    }
}

/// The address at which the others look for this member, when it was started to be at another port. A host that is
/// called otherwise may be the same one, and nobody looks for the only voter.
fn elsewhere<'a>(status: &'a Status, given: &str) -> Option<&'a str> {
    let port = |address: &str| address.parse::<Address>().ok().map(|address| address.port());
    let known = status.member(status.id)?.address.as_str();
    let alone = status.voters.iter().all(|voter| voter.id == status.id);
    (!alone && port(known).is_some() && port(known) != port(given)).then_some(known)
}

#[cfg(test)]
mod tests {
    use tessera_consensus::{Member, MemberId};

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
            elsewhere(&Status { voters, learners, ..Status::new(MemberId(1), true) }, given).map(str::to_owned)
        };
        assert_eq!(of(&both, &[], "10.0.0.1:7500").as_deref(), Some("10.0.0.1:7400"));
        assert_eq!(of(&two, &one, "10.0.0.1:7500").as_deref(), Some("10.0.0.1:7400"), "a member without a vote, too");
        assert_eq!(of(&both, &[], "node-1:7400"), None, "another name of the same host");
        assert_eq!(of(&one, &[], "10.0.0.1:7500"), None, "nobody else looks for it");
        assert_eq!(of(&two, &[], "10.0.0.1:7500"), None, "it is not known where");
    }
}
