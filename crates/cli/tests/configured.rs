//! A member and an agent whose settings come from their files, and what can be seen of them from outside.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The longest time that anything may take here.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process with a file of settings, killed at the end.
struct Configured {
    child: Child,
    log: PathBuf,
}

impl Configured {
    fn start(folder: &Path, word: &str, file: &str) -> Self {
        let (config, log) = (folder.join(format!("{word}.toml")), folder.join(format!("{word}.log")));
        fs::write(&config, file).expect("written");
        let said = fs::File::create(&log).expect("made");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tessera"));
        command.arg(word).arg("--config").arg(config).stdout(Stdio::null()).stderr(said);
        Self { child: command.spawn().expect("the program starts"), log }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).expect("readable")
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        // It may have ended by itself, which the test has noticed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "waited for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Ports of loopback where nobody listens.
fn closed_ports<const COUNT: usize>() -> [u16; COUNT] {
    let held: [TcpListener; COUNT] = std::array::from_fn(|_| TcpListener::bind(("127.0.0.1", 0)).expect("a port"));
    held.map(|listener| listener.local_addr().expect("it is bound").port())
}

/// The answer of a command; `None` when it fails.
fn tessera(server: &str, words: &[&str]) -> Option<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tessera"));
    let answer = command.args(words).args(["-s", server, "-o", "json"]).output().expect("the program starts");
    answer.status.success().then(|| serde_json::from_slice(&answer.stdout).expect("JSON"))
}

/// The status line of the page of metrics for whoever calls the process by this name.
fn metrics(port: u16, name: &str) -> String {
    until("the pages to be served", || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.lines().next().map(str::to_owned)
    })
}

#[test]
fn members_and_agents_are_what_their_files_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let [grpc, http, agent, agent_http] = closed_ports();
    let file = format!(
        "data_dir = '{}/one'\nlisten = '127.0.0.1:{grpc}'\nadvertise = 'localhost:{grpc}'\nname = 'first'\n\
         http = '127.0.0.1:{http}'\nhttp_names = ['pool.example']\n[log]\nformat = 'text'\n",
        folder.path().display()
    );
    let member = Configured::start(folder.path(), "server", &file);
    let server = format!("localhost:{grpc}");
    until("the cluster to be made", || tessera(&server, &["cluster", "init"]));
    let listed = until("the members", || tessera(&server, &["cluster", "member", "list"]));
    let listed = listed.as_array().or_else(|| listed["members"].as_array()).expect("a list").clone();
    assert_eq!((&listed[0]["name"], &listed[0]["address"]), (&"first".into(), &server.clone().into()), "{listed:?}");
    assert!(folder.path().join("one").read_dir().expect("it is made").next().is_some());
    assert!(member.log().contains(" INFO ") && member.log().contains("a member starts"), "{}", member.log());
    assert!(metrics(http, "pool.example").contains(" 200 "));
    assert!(!metrics(http, "other.example").contains(" 200 "));

    let data = folder.path().join("sets");
    fs::create_dir_all(data.join("imagenet")).expect("made");
    let inventory = folder.path().join("cards.toml");
    let cards = "[[node]]\nname = 'configured'\n[[node.card]]\nkind = 'gpu'\nvendor = 'acme'\nmodel = 'One'\n\
                 memory_gib = 8\ntflops = { fp16 = 4 }\n";
    fs::write(&inventory, cards).expect("written");
    let file = format!(
        "name = 'configured'\ndata_dir = '{0}/node'\nserver = ['{server}']\nlisten = '127.0.0.1:{agent}'\n\
         advertise = 'localhost:{agent}'\nworker_host = 'localhost'\nhttp = '127.0.0.1:{agent_http}'\n\
         http_names = ['node.example']\ninventory = '{1}'\ndata_dirs = ['{2}']\nrun_as = 'agent'\n\
         [host]\ncpus = 3\nmemory = '5GiB'\n[labels]\nrack = '7'\n[log]\nfilter = 'off'\n",
        folder.path().display(),
        inventory.display(),
        data.display()
    );
    let process = Configured::start(folder.path(), "agent", &file);
    let node = until("the node", || tessera(&server, &["node", "show", "configured"]));
    assert_eq!((&node["address"], &node["worker_host"]), (&format!("localhost:{agent}").into(), &"localhost".into()));
    assert_eq!((&node["labels"]["rack"], &node["cached"][0]), (&"7".into(), &"imagenet".into()), "{node}");
    assert_eq!((node["cards"].as_u64(), node["blocks"]["free"].as_u64()), (Some(1), Some(4)), "{node}");
    assert_eq!(
        (node["host"]["cpus"].as_f64(), node["host"]["memory_mib"].as_u64()),
        (Some(3.0), Some(5_120)),
        "{node}"
    );
    TcpStream::connect(("127.0.0.1", agent)).expect("members read output there");
    assert!(folder.path().join("node/node.json").exists());
    assert!(metrics(agent_http, "node.example").contains(" 200 "));
    assert!(!metrics(agent_http, "other.example").contains(" 200 "));
    assert_eq!(process.log(), "", "nothing of it is logged");
}
