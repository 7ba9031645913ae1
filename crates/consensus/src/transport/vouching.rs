//! Asks the leader, at the address that the membership has, whether it sent what is said to come from it.
//!
//! It is asked only where a lie would cost a member: before it stops for an entry that it cannot read (law L7), and
//! before it takes over a whole state. What comes in the ordinary way waits for nobody.

use planted::Bug;
use tokio::time::Instant;
use tonic::Status;

use super::links::Lane;
use super::server::{Served, garbled};
use crate::ids::{Member, MemberId};
use crate::machine::{Machine, Unreadable};
use crate::pb;
use crate::types::Vote;

/// The member that is said to have sent something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sender {
    pub member: MemberId,
    /// The number that it told; 0: none.
    pub nonce: u64,
}

impl<M: Machine> Served<M> {
    /// Tells whether this member knows nothing yet: it has no others to ask, and nothing to lose.
    fn is_new(&self) -> Result<bool, Status> {
        let log = self.inner.shared.store.log_state().map_err(|error| Status::internal(error.to_string()))?;
        Ok(log.last.is_none())
    }

    /// Asks whether a member sent what came with its number, one question at a time.
    ///
    /// # Errors
    /// The refusal, when it did not, or cannot be asked: whoever sent it sends it again.
    async fn confirm(&self, sender: Sender) -> Result<(), Status> {
        let refused = |why: String| {
            tracing::warn!(member = %sender.member, "what came in its name was refused: {why}");
            Status::unavailable(why)
        };
        let _turn = self.inner.shared.questions.lock().await;
        let place = self.place_of(sender).await;
        let place = place.ok_or_else(|| refused(format!("nobody says where member {} is reached", sender.member)))?;
        match self.ask(&place, sender).await {
            None => Err(refused(format!("{place} cannot be asked whether that was its own"))),
            Some(answer) if !answer.vouched => Err(refused(format!("{place} says that it was not its own"))),
            Some(_) => Ok(()),
        }
    }

    /// Finds out where a member is reached. It may have come to be one since this member heard last: the others know.
    async fn place_of(&self, sender: Sender) -> Option<Member> {
        let status = self.inner.status.borrow().clone();
        if let Some(known) = status.member(sender.member) {
            return Some(known.clone());
        }
        for voter in status.voters.iter().filter(|voter| voter.id != self.inner.shared.id()) {
            let address = self.ask(voter, sender).await.map(|answer| answer.address).unwrap_or_default();
            if !address.is_empty() {
                return Some(Member { id: sender.member, name: String::new(), address });
            }
        }
        None
    }

    async fn ask(&self, member: &Member, sender: Sender) -> Option<pb::VouchResponse> {
        let deadline = Instant::now() + self.inner.shared.config.append_timeout;
        let header = Some(self.inner.links.header(member.id));
        let request = pb::VouchRequest { header, member_id: sender.member.0, nonce: sender.nonce };
        let answer =
            self.inner.links.call(member, Lane::Control, deadline, request, |mut client, request| async move {
                client.vouch(request).await
            });
        answer.await.inspect_err(|error| tracing::debug!(%member, %error, "it does not vouch")).ok()
    }

    /// Answers another member that asks so. Nothing is given away by it, and nobody may keep it from being answered by
    /// speaking in the asker's name: the asker is not judged.
    pub(super) fn vouch(&self, request: &pb::VouchRequest) -> Result<pb::VouchResponse, Status> {
        let asker = MemberId(self.check(request.header.as_ref())?.from);
        let of = MemberId(request.member_id);
        let vouched = of == self.inner.shared.id() && self.inner.shared.nonces.told(asker, request.nonce);
        let address = self.inner.status.borrow().member(of).map(|member| member.address.clone()).unwrap_or_default();
        Ok(pb::VouchResponse { vouched, address })
    }

    /// Refuses what this release cannot read. It is a reason to stop, whether it comes from the disk or from the leader
    /// (L7), but what does not come from the leader that this member follows was never to be stored.
    pub(super) async fn cannot_read(&self, sender: Sender, vote: &Vote, error: Unreadable) -> Status {
        let own = self.own_vote();
        if !own.committed || *vote != own || vote.leader_id.voted_for != sender.member.0 {
            return garbled(error);
        }
        match self.check_origin(sender).await {
            Ok(()) => Status::internal(self.inner.shared.unreadable(error).to_string()),
            Err(refused) => refused,
        }
    }

    /// Refuses what did not come from the member that it names. A member that knows nothing believes whoever comes.
    pub(super) async fn check_origin(&self, sender: Sender) -> Result<(), Status> {
        let believes = planted::is(Bug::StrangerBelieved) || self.is_new()?;
        if believes { Ok(()) } else { self.confirm(sender).await }
    }
}
