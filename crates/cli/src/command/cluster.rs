//! `tessera cluster`.

use std::time::Duration;

use tessera_api::pool_view;
use tessera_api::v1::{
    AddMemberRequest, InitializeClusterRequest, ListMembersRequest, NewMember, PoolConfig, PromoteMemberRequest,
    RemoveMemberRequest, TransferLeadershipRequest,
};
use tessera_client::{Address, Client, ClientError};

use super::Desk;
use crate::args::{AddMemberArgs, ClusterVerb, InitArgs, LeaseArgs, MemberVerb};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::print::confirm;
use crate::survey::Survey;
use crate::view::{InitializedView, LeaderView, MemberView};

/// Time for changes of the membership, which copy the ledger and wait for others, unless somebody says how much.
const MEMBERSHIP: Duration = Duration::from_secs(60);

pub(super) async fn run(desk: Desk, verb: ClusterVerb) -> Result<Exit, Failure> {
    match verb {
        ClusterVerb::Init(args) => init(desk, args).await,
        ClusterVerb::Status => status(desk).await,
        ClusterVerb::Member(MemberVerb::List) => list(desk).await,
        ClusterVerb::Member(MemberVerb::Add(args)) => add(desk, args).await,
        ClusterVerb::Member(MemberVerb::Promote { member, majority }) => {
            promote(desk, member, majority.without_majority).await
        }
        ClusterVerb::Member(MemberVerb::Remove { member, majority, yes }) => {
            remove(desk, member, majority.without_majority, yes).await
        }
        ClusterVerb::Snapshot(verb) => super::backup::run(desk, verb).await,
        ClusterVerb::Recover(args) => super::backup::recover(desk, args),
        ClusterVerb::TransferLeader { member } => transfer(desk, member).await,
    }
}

/// A client that has time for a change of the membership.
fn patient(desk: &Desk) -> Client {
    desk.client.with_deadline(desk.patience.unwrap_or(MEMBERSHIP))
}

async fn init(mut desk: Desk, args: InitArgs) -> Result<Exit, Failure> {
    let members = founders(&args.members, desk.client.members())?;
    check_leases(args.leases)?;
    // The first founder is asked: it must be one of them, and --server may name others.
    let first: Address = members[0]
        .address
        .parse()
        .map_err(|error| Failure::from_error(Exit::Usage, "the cluster was not created", &error))?;
    let failed = |error: &ClientError| Failure::call("the cluster was not created", error);
    let client = patient(&desk).only(&first).map_err(|error| failed(&error))?;
    // Chosen here, so that a retry is known as one; a second founding has another id and is refused.
    let cluster_id = if args.cluster_id.is_empty() { uuid::Uuid::new_v4().to_string() } else { args.cluster_id };
    let pool = args.blocks.new_pool();
    let request = InitializeClusterRequest { request_id: String::new(), cluster_id, members, pool };
    let answer = client.initialize_cluster(request).await.map_err(|error| failed(&error))?;
    if args.leases != LeaseArgs::default() {
        let what = "the cluster was created, but not its timings of leases; see `tessera pool config set`";
        super::config::change(&desk, what, |config| with_leases(args.leases, config)).await?;
    }
    desk.printer.one(&InitializedView::from(answer))?;
    Ok(Exit::Done)
}

fn with_leases(args: LeaseArgs, mut config: PoolConfig) -> PoolConfig {
    super::config::put_leases(args, config.leases.get_or_insert_default());
    config
}

/// Refuses timings that no new pool could have, before there is one.
fn check_leases(args: LeaseArgs) -> Result<(), Failure> {
    const WHAT: &str = "the cluster was not created";
    let config = with_leases(args, pool_view::config(&tessera_ledger::PoolConfig::default()));
    let config = pool_view::config_of_request(Some(&config));
    let config = config.map_err(|refusal| Failure::from_error(Exit::Usage, WHAT, &refusal))?;
    config.leases.check().map_err(|refused| Failure::from_error(Exit::Usage, WHAT, &refused))
}

/// The founders as they are named: `HOST:PORT` or `NAME=HOST:PORT`; those of `--server` when none is.
fn founders(named: &[String], servers: &[Address]) -> Result<Vec<NewMember>, Failure> {
    let texts: Vec<String> =
        if named.is_empty() { servers.iter().map(ToString::to_string).collect() } else { named.to_vec() };
    let member = |text: &String| {
        let (name, address) = text.split_once('=').unwrap_or(("", text));
        let address: Address =
            address.parse().map_err(|error| Failure::from_error(Exit::Usage, "the cluster was not created", &error))?;
        Ok(NewMember { name: name.to_owned(), address: address.to_string() })
    };
    texts.iter().map(member).collect()
}

/// Asks every member that is known, and believes the highest term.
async fn status(mut desk: Desk) -> Result<Exit, Failure> {
    let survey = Survey::take(&desk.client).await;
    if let Some(error) = survey.nobody_answered() {
        return Err(Failure::call("no member could be asked", error));
    }
    let view = survey.view();
    desk.printer.one(&view)?;
    Ok(if view.writable { Exit::Done } else { Exit::Unavailable })
}

async fn list(mut desk: Desk) -> Result<Exit, Failure> {
    let answer = desk.client.list_members(ListMembersRequest {}).await;
    let answer = answer.map_err(|error| Failure::call("the members cannot be listed", &error))?;
    print_members(&mut desk, answer.members)
}

fn print_members(desk: &mut Desk, members: Vec<tessera_api::v1::Member>) -> Result<Exit, Failure> {
    let views: Vec<MemberView> = members.into_iter().map(MemberView::from).collect();
    desk.printer.list(&views)?;
    Ok(Exit::Done)
}

async fn add(mut desk: Desk, args: AddMemberArgs) -> Result<Exit, Failure> {
    let what = format!("{} was not added", args.address);
    let address: Address =
        args.address.parse().map_err(|error| Failure::from_error(Exit::Usage, what.clone(), &error))?;
    let new = NewMember { name: args.name, address: address.to_string() };
    let request = AddMemberRequest { request_id: String::new(), member: Some(new) };
    let client = patient(&desk);
    let answer = client.add_member(request).await.map_err(|error| Failure::call(what, &error))?;
    let member = answer.member.unwrap_or_default();
    if args.promote {
        return promote(desk, member.id, false).await;
    }
    print_members(&mut desk, vec![member])
}

async fn promote(mut desk: Desk, member: u64, without_majority: bool) -> Result<Exit, Failure> {
    let request = PromoteMemberRequest { request_id: String::new(), member_id: member, without_majority };
    let answer = patient(&desk).promote_member(request).await;
    let answer = answer.map_err(|error| Failure::call(format!("member {member} was not given a vote"), &error))?;
    print_members(&mut desk, answer.members)
}

async fn remove(mut desk: Desk, member: u64, without_majority: bool, yes: bool) -> Result<Exit, Failure> {
    confirm(yes, &format!("Remove member {member}? Its data folder can never be used again."))?;
    let request = RemoveMemberRequest { request_id: String::new(), member_id: member, without_majority };
    let answer = patient(&desk).remove_member(request).await;
    let answer = answer.map_err(|error| Failure::call(format!("member {member} was not removed"), &error))?;
    print_members(&mut desk, answer.members)
}

async fn transfer(mut desk: Desk, member: Option<u64>) -> Result<Exit, Failure> {
    let request = TransferLeadershipRequest { request_id: String::new(), member_id: member.unwrap_or(0) };
    let answer = patient(&desk).transfer_leadership(request).await;
    let answer = answer.map_err(|error| Failure::call("leadership was not handed over", &error))?;
    desk.printer.one(&LeaderView::from(answer))?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> Address {
        format!("127.0.0.1:{port}").parse().expect("a good address")
    }

    #[test]
    fn founders_may_have_names() {
        let named = ["a=127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()];
        let members = founders(&named, &[address(9)]).expect("good");
        let pairs: Vec<(&str, &str)> = members.iter().map(|m| (m.name.as_str(), m.address.as_str())).collect();
        assert_eq!(pairs, [("a", "127.0.0.1:1"), ("", "127.0.0.1:2")]);
        assert_eq!(founders(&[], &[address(9)]).expect("good")[0].address, "127.0.0.1:9");
        assert_eq!(founders(&["nowhere".to_owned()], &[]).expect_err("refused").exit, Exit::Usage);
    }

    #[test]
    fn timings_that_contradict_each_other_are_refused_before_anything_is_founded() {
        let hasty = LeaseArgs { lease_regrant_after: Some(Duration::from_secs(13)), ..LeaseArgs::default() };
        let refused = check_leases(hasty).expect_err("refused");
        assert_eq!(refused.exit, Exit::Usage);
        assert!(refused.to_string().contains("config.leases.regrant_after: must be at least a quarter"), "{refused}");
        assert!(check_leases(LeaseArgs::default()).is_ok());
    }
}
