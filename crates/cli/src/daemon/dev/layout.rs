//! The layout of a pool on one machine: names, folders and ports, recorded in its folder so that the pool can be
//! started again.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tessera_client::Address;
use tessera_devices::inventory::Inventory;

use crate::args::DevArgs;
use crate::exit::Exit;
use crate::failure::Failure;

/// The file that keeps the layout.
const FILE: &str = "dev.json";

/// The pool that is to run.
pub struct Plan {
    members: usize,
    nodes: Vec<String>,
    inventory: Option<PathBuf>,
    port: u16,
}

impl Plan {
    /// The plan of the arguments; its nodes are those of an inventory, or `node-0`, `node-1` and so on.
    ///
    /// # Errors
    /// A [`Failure`] for an inventory that cannot be used.
    pub fn of(args: &DevArgs) -> Result<Self, Failure> {
        let wanted = args.agents.map(usize::from);
        let (nodes, inventory) = match &args.inventory {
            None => ((0..wanted.unwrap_or(1)).map(|index| format!("node-{index}")).collect(), None),
            Some(path) => {
                let unusable = |error: &dyn std::error::Error| {
                    Failure::from_error(Exit::Usage, "the inventory cannot be used", error)
                };
                let declared = Inventory::load(path).map_err(|error| unusable(&error))?;
                let names: Vec<String> = declared.nodes.into_iter().map(|node| node.name).collect();
                let count = wanted.unwrap_or(names.len());
                if count > names.len() {
                    let why = format!("it declares {} nodes, and {count} are wanted", names.len());
                    return Err(Failure::new(Exit::Usage, "the inventory cannot be used", why));
                }
                let absolute = path.canonicalize().map_err(|error| unusable(&error))?;
                (names.into_iter().take(count).collect(), Some(absolute))
            }
        };
        Ok(Self { members: usize::from(args.members), nodes, inventory, port: args.port })
    }
}

/// A pool on one machine.
#[derive(Debug, Serialize, Deserialize)]
pub struct Layout {
    /// The folder of everything.
    #[serde(skip)]
    pub folder: PathBuf,
    pub members: Vec<Member>,
    pub agents: Vec<Agent>,
    /// The inventory of simulated cards.
    inventory: Option<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Member {
    pub name: String,
    /// The address that it listens at.
    pub grpc: SocketAddr,
    /// The address of its metrics.
    pub http: SocketAddr,
    /// Its folder, below the pool's.
    #[serde(skip)]
    pub dir: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Agent {
    /// The node's name.
    pub name: String,
    /// The address of its metrics.
    pub http: SocketAddr,
    /// Its folder, below the pool's.
    #[serde(skip)]
    pub dir: PathBuf,
}

impl Layout {
    /// The layout in `folder`: as it was when there is one, with agents added and left out as is wanted now.
    ///
    /// # Errors
    /// A [`Failure`] when the folder holds another pool, or no ports are free.
    pub fn make(plan: &Plan, folder: &Path) -> Result<Self, Failure> {
        let failed =
            |error: &dyn std::error::Error| Failure::from_error(Exit::Failed, "the pool was not started", error);
        let path = folder.join(FILE);
        let mut ports = Ports::from(plan.port);
        let members = match fs::read_to_string(&path) {
            Ok(text) => {
                let kept: Self = serde_json::from_str(&text).map_err(|error| failed(&error))?;
                if kept.members.len() != plan.members {
                    let why = format!("the folder holds a pool of {} members", kept.members.len());
                    return Err(Failure::new(Exit::Usage, "the pool was not started", why)
                        .next(format!("give --members {}, or another folder", kept.members.len())));
                }
                kept.members
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                (1..=plan.members).map(|number| Member::new(number, &mut ports)).collect::<Result<_, _>>()?
            }
            Err(error) => return Err(failed(&error)),
        };
        let agents =
            plan.nodes.iter().map(|name| Ok(Agent { name: name.clone(), http: ports.free()?, dir: PathBuf::new() }));
        let mut layout = Self {
            folder: folder.to_owned(),
            members,
            agents: agents.collect::<Result<_, Failure>>()?,
            inventory: plan.inventory.clone(),
        };
        let text = serde_json::to_string_pretty(&layout).map_err(|error| failed(&error))?;
        fs::create_dir_all(folder.join("logs"))
            .and_then(|()| fs::write(&path, text))
            .map_err(|error| failed(&error))?;
        for member in &mut layout.members {
            member.dir = folder.join(&member.name);
        }
        for agent in &mut layout.agents {
            agent.dir = folder.join(format!("agent-{}", agent.name));
        }
        Ok(layout)
    }

    /// Returns whether an inventory declares the cards.
    pub fn is_simulated(&self) -> bool {
        self.inventory.is_some()
    }

    /// The addresses of the members.
    pub fn addresses(&self) -> Vec<Address> {
        // An address of a socket is an address of a member.
        self.members.iter().filter_map(|member| member.grpc.to_string().parse().ok()).collect()
    }

    /// The log of a child.
    pub fn log_of(&self, name: &str) -> PathBuf {
        self.folder.join("logs").join(format!("{name}.log"))
    }

    /// The command line of a member.
    pub fn member_arguments(&self, member: &Member, log: &str) -> Vec<OsString> {
        let mut arguments: Vec<OsString> =
            ["server", "--stop-with-stdin", "--log-format", "text", "--log"].map(Into::into).into();
        arguments.push(log.into());
        for (flag, value) in [
            ("--data-dir", member.dir.clone().into_os_string()),
            ("--listen", member.grpc.to_string().into()),
            ("--http", member.http.to_string().into()),
            ("--name", member.name.clone().into()),
        ] {
            arguments.extend([flag.into(), value]);
        }
        arguments
    }

    /// The command line of an agent.
    pub fn agent_arguments(&self, agent: &Agent, log: &str) -> Vec<OsString> {
        let servers: Vec<String> = self.members.iter().map(|member| member.grpc.to_string()).collect();
        let mut arguments: Vec<OsString> =
            ["agent", "--stop-with-stdin", "--log-format", "text", "--log"].map(Into::into).into();
        arguments.push(log.into());
        for (flag, value) in [
            ("--data-dir", agent.dir.clone().into_os_string()),
            ("--name", agent.name.clone().into()),
            ("--server", servers.join(",").into()),
            ("--http", agent.http.to_string().into()),
            // A pool on one machine is its owner's own: work may do there what they may.
            ("--run-as", "agent".into()),
        ] {
            arguments.extend([flag.into(), value]);
        }
        if let Some(inventory) = &self.inventory {
            arguments.extend(["--inventory".into(), inventory.clone().into_os_string()]);
        }
        arguments
    }
}

impl Member {
    fn new(number: usize, ports: &mut Ports) -> Result<Self, Failure> {
        let (grpc, http) = (ports.free()?, ports.free()?);
        Ok(Self { name: format!("member-{number}"), grpc, http, dir: PathBuf::new() })
    }
}

/// Free ports of loopback, counted up from a first one and taken from the system when one is in use.
struct Ports {
    next: u16,
}

impl Ports {
    fn from(first: u16) -> Self {
        Self { next: first }
    }

    fn free(&mut self) -> Result<SocketAddr, Failure> {
        let wanted = self.next;
        self.next = self.next.saturating_add(1);
        let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).and_then(|listener| listener.local_addr());
        bind(wanted)
            .or_else(|_| bind(0))
            .map_err(|error| Failure::from_error(Exit::Failed, "no port of loopback is free", &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(members: usize, nodes: &[&str]) -> Plan {
        Plan { members, nodes: nodes.iter().map(|name| (*name).to_owned()).collect(), inventory: None, port: 0 }
    }

    #[test]
    fn a_pool_that_is_started_again_keeps_its_members() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = Layout::make(&plan(3, &["a", "b"]), folder.path()).expect("laid out");
        let again = Layout::make(&plan(3, &["a"]), folder.path()).expect("laid out");
        assert_eq!(first.addresses(), again.addresses());
        assert_eq!(again.agents.len(), 1);
        assert_eq!(again.members[2].dir, folder.path().join("member-3"));
        let other = Layout::make(&plan(1, &[]), folder.path()).expect_err("another pool");
        assert!(other.to_string().contains("--members 3"), "{other}");
    }

    #[test]
    fn ports_are_distinct_even_when_taken_by_the_system() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = taken.local_addr().expect("bound").port();
        let mut ports = Ports::from(port);
        assert_ne!(ports.free().expect("a port").port(), port);
    }

    #[test]
    fn children_are_told_everything_they_need() {
        let folder = tempfile::tempdir().expect("a folder");
        let layout = Layout::make(&plan(1, &["a"]), folder.path()).expect("laid out");
        let arguments = layout.agent_arguments(&layout.agents[0], "info");
        let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
        let command = crate::args::command().try_get_matches_from(["tessera"].iter().chain(&words));
        assert!(command.is_ok(), "{words:?}");
        let arguments = layout.member_arguments(&layout.members[0], "info");
        let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
        assert!(crate::args::command().try_get_matches_from(["tessera"].iter().chain(&words)).is_ok(), "{words:?}");
    }
}
