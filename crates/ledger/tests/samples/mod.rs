//! One command of each kind with every field set to something that is not its default, for golden files.
#![allow(dead_code)] // each test file uses its part

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tessera_ledger::{
    Access, Affinity, AllocationId, AttainedOrder, BlockCount, BlockIndex, CardDescription, CardHealth, CardId,
    CardKind, CheckpointKey, CheckpointMode, CheckpointPolicy, Command, CompactionPolicy, Eligibility, Epoch,
    HostCapacity, HostRequest, IdlePolicy, IdleStep, Isolation, JobId, JobSpec, LeaseTimings, Level, Link, LinkKind,
    LogTime, Mebibytes, MilliCpus, MilliTflops, MoveId, MovePhase, NodeDescription, NodeId, Observation, OnDisconnect,
    Owner, Packing, PartKey, Percent, Plan, PlanPart, PlannedWorker, PoolConfig, Precision, PreferredLabel,
    QueueAmount, QueueSettings, Rank, Request, RequestId, RequestKey, RetryPolicy, Revision, SavedPart, Slice, Span,
    StopCause, UNKNOWN, VirtualCardRequest, WindowOf, WorkerExit, WorkerReport,
};
use tessera_testkit::submission;

/// One of every kind.
pub fn commands() -> Vec<Command> {
    let (node, job) = (NodeId(3), JobId(41));
    vec![
        Command::RegisterNode { node: node_description(), cards: vec![card()] },
        Command::UpdateCards { node, cards: vec![card()] },
        Command::SetEligibility { node, eligibility: Eligibility::Draining, reason: "fan 2 is dying".to_owned() },
        Command::DrainNode { node, reason: "fan 2 is dying".to_owned(), within: Duration::from_secs(1_800) },
        Command::NodeLost { node, epoch: Epoch(77) },
        Command::NodeReturned { node, incarnation: 5 },
        Command::ForgetNode { node },
        Command::ConfirmStopped { node },
        Command::UpdateCached { node, cached: cached() },
        Command::SubmitJob { spec: Arc::new(spec()), traceparent: "00-4bf92f-00f067-01".to_owned(), secret: None },
        Command::CancelJob { job },
        Command::ExpireJob { job, allocation: AllocationId(9) },
        close(WindowOf::Queue("vision".to_owned()), LogTime(1_700_000_000_000)),
        Command::GrowJob { job, allocation: AllocationId(9) },
        Command::NoteIdle { job, attempt: 3, since: LogTime(1_700_000_000_000), step: Some(IdleStep::Suspended) },
        Command::HoldJob { job },
        Command::ReleaseJob { job },
        Command::SuspendJob { job },
        Command::ResumeJob { job },
        Command::SetQueue { queue: queue() },
        Command::RemoveQueue { name: "vision".to_owned() },
        Command::SetConfig { config: config(), expected: None },
        Command::CommitPlan { plan: plan() },
        Command::ReportWorkers { node, reports: reports() },
        Command::NoteKept { node, kept: vec![part(1), part(CheckpointKey::LAST)], gone: vec![part(2)] },
        Command::AdvanceMove { id: MoveId(4), from: MovePhase::Transferring, proceed: true },
        Command::SettleLeases { changed_at: Revision(41) },
        Command::Tick,
        Command::Drill,
        Command::RaiseLevel { to: Level::One },
    ]
}

/// Commands with other fields than those, under the names of their own files.
pub fn additions() -> Vec<(&'static str, Command)> {
    let node = full_node();
    let queue = QueueSettings { packing: Some(Packing::Stack), ..queue() };
    vec![
        ("register_node.host", Command::RegisterNode { node, cards: vec![] }),
        ("submit_job.host", submission(full_spec())),
        ("submit_job.slice_memory", submission(thick_spec())),
        ("submit_job.every", submission(saving_spec())),
        ("submit_job.access", submission(device_spec())),
        ("submit_job.remote", submission(remote_spec())),
        ("submit_job.elastic", submission(elastic_spec())),
        ("submit_job.secret", secret_submission()),
        ("report_workers.checkpoints", Command::ReportWorkers { node: NodeId(3), reports: checkpoint_reports() }),
        ("submit_job.windows", submission(nightly_spec())),
        ("close_until.job", close(WindowOf::Job(JobId(41)), UNKNOWN)),
        ("set_queue.packing", Command::SetQueue { queue }),
        ("set_queue.windows", Command::SetQueue { queue: QueueSettings { windows: nights(), ..self::queue() } }),
        ("submit_job.keep", submission(keeping_spec())),
        ("submit_job.fallback", submission(falling_back_spec())),
        (
            "set_queue.checkpoints",
            Command::SetQueue { queue: QueueSettings { checkpoints: Some(Mebibytes(4096)), ..self::queue() } },
        ),
        (
            "set_queue.attained",
            Command::SetQueue { queue: QueueSettings { attained: Some(AttainedOrder::default()), ..self::queue() } },
        ),
        ("set_queue.idle", Command::SetQueue { queue: QueueSettings { idle: Some(idle()), ..self::queue() } }),
        ("set_config.policies", Command::SetConfig { config: full_config(), expected: None }),
        ("set_config.leases", Command::SetConfig { config: patient_config(), expected: None }),
        ("set_config.hold", Command::SetConfig { config: held_config(), expected: None }),
        ("set_config.expected", Command::SetConfig { config: full_config(), expected: Some(Box::new(config())) }),
    ]
}

/// A job whose device lies on several nodes.
fn secret_submission() -> Command {
    let device = device_spec();
    let virtual_card = VirtualCardRequest { span: Span::Pool, ..device.virtual_card.clone() };
    let spec = JobSpec { virtual_card, gang: 1, gang_min: None, ..device }.with_needs_of_its_access();
    Command::SubmitJob { spec: Arc::new(spec), traceparent: String::new(), secret: Some(0xf00d << 96) }
}

/// A queue or job is closed by its windows.
fn close(whose: WindowOf, time: LogTime) -> Command {
    Command::CloseUntil { whose, windows: nights(), time }
}

/// A ladder for jobs that are idle: every step after a time of its own.
pub fn idle() -> IdlePolicy {
    let minutes = |minutes: u64| Some(Duration::from_secs(60 * minutes));
    IdlePolicy {
        below: Percent(5),
        notify_after: minutes(10),
        preemptible_after: minutes(20),
        suspend_after: minutes(60),
        release_after: minutes(600),
    }
}

/// Windows in which a job runs at night.
fn nights() -> Vec<String> {
    vec!["0 20 * * mon-fri for 10h in Europe/Berlin".to_owned(), "0 0 * * sat,sun for 24h".to_owned()]
}

/// A job that runs at night only.
fn nightly_spec() -> JobSpec {
    JobSpec { windows: nights(), grow_after: Some(Duration::from_secs(1800)), ..spec() }
}

/// A job whose program saves itself where it cannot be dumped.
fn falling_back_spec() -> JobSpec {
    let (mode, fallback) = (CheckpointMode::Transparent, CheckpointMode::Cooperative);
    let checkpoint = CheckpointPolicy { mode, fallback, ..spec().checkpoint };
    JobSpec { checkpoint, ..spec() }
}

/// A job that says how many checkpoints are kept.
fn keeping_spec() -> JobSpec {
    let checkpoint = CheckpointPolicy { keep: Some(5), ..spec().checkpoint };
    JobSpec { checkpoint, ..spec() }
}

/// A job that is asked to save while it runs.
fn saving_spec() -> JobSpec {
    let checkpoint = CheckpointPolicy { every: Some(Duration::from_secs(600)), ..spec().checkpoint };
    JobSpec { checkpoint, ..spec() }
}

/// A job whose program has one device.
fn device_spec() -> JobSpec {
    let virtual_card = VirtualCardRequest { access: Access::Device, span: Span::Card, ..spec().virtual_card };
    JobSpec { virtual_card, ..spec() }.with_needs_of_its_access()
}

/// A job whose program is on a host of its own.
fn remote_spec() -> JobSpec {
    let device = device_spec();
    let virtual_card = VirtualCardRequest { access: Access::Remote, ..device.virtual_card.clone() };
    JobSpec { virtual_card, command: Vec::new(), script: String::new(), gang: 1, gang_min: None, ..device }
}

/// A job that takes time of its cards that nobody else uses.
fn elastic_spec() -> JobSpec {
    JobSpec { virtual_card: VirtualCardRequest { elastic: true, ..spec().virtual_card }, ..spec() }
}

fn part(sequence: u64) -> PartKey {
    PartKey { job: JobId(41), checkpoint: CheckpointKey { attempt: 2, sequence }, epoch: Epoch(880), rank: Rank(1) }
}

fn checkpoint_reports() -> Vec<WorkerReport> {
    let worker = |rank| Owner { allocation: AllocationId(12), epoch: Epoch(880), rank: Rank(rank) };
    let unusable = |lost| Observation::Unusable { lost, message: "chunk 3 is not what was stored".to_owned() };
    let saved = SavedPart {
        progress: 1200,
        ticket: 0xabcd_ef01,
        shared: true,
        mode: CheckpointMode::Transparent,
        ..tessera_testkit::saved(4, 1 << 20)
    };
    let cause = StopCause::NotRestored;
    let message = "the image of its processes cannot be restored here: no such file".to_owned();
    let (code, signal, checkpointed, not_saved) = (None, None, false, String::new());
    let ended_at = LogTime(0);
    let exit = WorkerExit { cause, code, signal, checkpointed, message, not_saved, ended_at };
    let not_restored = Observation::Stopped(exit);
    let observations = [Observation::Saved(saved), unusable(true), unusable(false), not_restored];
    (0..).zip(observations).map(|(rank, observation)| WorkerReport { worker: worker(rank), observation }).collect()
}

/// A job that says how much memory it needs on each card.
fn thick_spec() -> JobSpec {
    JobSpec { virtual_card: VirtualCardRequest { slice_memory: Mebibytes(4_096), ..spec().virtual_card }, ..spec() }
}

/// A node that says everything.
pub fn full_node() -> NodeDescription {
    let host = Some(HostCapacity { cpu: MilliCpus(96_000), memory: Mebibytes(1 << 20) });
    NodeDescription { host, cached: cached(), ..node_description() }
}

fn cached() -> BTreeSet<String> {
    BTreeSet::from(["imagenet-2012".to_owned(), "llama.safetensors".to_owned()])
}

/// A job that says everything.
pub fn full_spec() -> JobSpec {
    JobSpec {
        virtual_card: VirtualCardRequest { whole_cards: true, ..spec().virtual_card },
        host: HostRequest { cpu: MilliCpus(1500), memory: Mebibytes(2048) },
        gang_min: Some(2),
        min_runtime: Duration::from_secs(600),
        affinity: Affinity {
            preferred: vec![PreferredLabel { key: "rack".to_owned(), value: "r1".to_owned(), weight: 40 }],
            together: "zone".to_owned(),
            spread: "node".to_owned(),
            avoid: words([("service", "embeddings")]),
            data: cached(),
        },
        packing: Some(Packing::Spread),
        ..spec()
    }
}

/// Settings that say everything.
pub fn full_config() -> PoolConfig {
    PoolConfig {
        packing: Packing::Spread,
        fair_share_half_life: Duration::from_secs(86_400),
        oversubscription: BTreeMap::from([(CardKind::Gpu, Percent(150)), (CardKind::Cpu, Percent(400))]),
        compaction: CompactionPolicy { automatic: true, threshold: Percent(30), moves_per_hour: 12 },
        ..config()
    }
}

/// Settings under which leases last longer than they do unless it is said.
pub fn patient_config() -> PoolConfig {
    let leases = LeaseTimings {
        heartbeat: Duration::from_secs(5),
        stop_after: Duration::from_secs(30),
        kill_after: Duration::from_secs(40),
        regrant_after: Duration::from_millis(60_500),
    };
    PoolConfig { leases, ..config() }
}

/// Settings that hold the release level.
pub fn held_config() -> PoolConfig {
    PoolConfig { hold_level: true, ..full_config() }
}

pub fn request(command: Command) -> Request {
    let key = RequestKey { id: RequestId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff), fingerprint: u64::MAX - 1 };
    Request { key: Some(key), actor: "ada".to_owned(), command }
}

fn words<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

pub fn node_description() -> NodeDescription {
    NodeDescription {
        uid: "8c6f".to_owned(),
        incarnation: 5,
        address: "10.0.0.3:7201".to_owned(),
        worker_host: "10.0.0.3".to_owned(),
        labels: words([("rack", "r1"), ("zone", "a")]),
        containment: tessera_ledger::Containment::Partial { missing: String::new() },
        ..tessera_testkit::node("rack1-n3")
    }
}

pub fn card() -> CardDescription {
    CardDescription {
        index: 0,
        kind: CardKind::Npu,
        vendor: "acme".to_owned(),
        model: "Axon 9".to_owned(),
        uuid: "AX-0001".to_owned(),
        memory: Mebibytes(65_536),
        rated: BTreeMap::from([(Precision::Fp32, MilliTflops(80_000)), (Precision::Int8, MilliTflops(640_000))]),
        measured: BTreeMap::from([(Precision::Fp16, MilliTflops(311_500))]),
        links: vec![Link { peer_index: 1, kind: LinkKind::PcieSwitch, megabytes_per_second: 31_500 }],
        isolation: Isolation::Hard,
        simulated: true,
        pci_address: "0000:3b:00.0".to_owned(),
        max_slices: 7,
        health: CardHealth::Unhealthy,
    }
}

/// A job with what the first files say.
pub fn spec() -> JobSpec {
    let virtual_card = VirtualCardRequest {
        precision: Some(Precision::Bf16),
        span: Span::Pool,
        kinds: BTreeSet::from([CardKind::Gpu, CardKind::Fpga]),
        mixed: true,
        isolation: Isolation::Soft,
        vendors: BTreeSet::from(["acme".to_owned()]),
        models: BTreeSet::from(["Axon 9".to_owned()]),
        ..VirtualCardRequest::new(MilliTflops(12_500), Mebibytes(16_384))
    };
    JobSpec {
        name: "train".to_owned(),
        queue: "vision".to_owned(),
        environment: words([("EPOCHS", "3")]),
        working_directory: "/data".to_owned(),
        script: "#!/bin/sh\ntrue\n".to_owned(),
        gang: 3,
        priority: 70,
        preemptible: false,
        checkpoint: CheckpointPolicy {
            mode: CheckpointMode::Cooperative,
            signal: "SIGUSR1".to_owned(),
            grace: Duration::from_millis(2500),
            ..CheckpointPolicy::default()
        },
        on_disconnect: OnDisconnect::Keep,
        time_limit: Some(Duration::from_secs(3600)),
        retry: RetryPolicy { max_retries: 4, backoff: Duration::from_secs(2), max_backoff: Duration::from_secs(60) },
        labels: words([("team", "vision")]),
        node_labels: words([("zone", "a")]),
        output_retention: Some(Duration::from_secs(86_400)),
        held: true,
        ..JobSpec::new(vec!["python3".to_owned(), "train.py".to_owned()], virtual_card)
    }
}

pub fn queue() -> QueueSettings {
    QueueSettings {
        parent: "default".to_owned(),
        guaranteed: QueueAmount { compute: MilliTflops(10_000), memory: Mebibytes(4096) },
        maximum: Some(QueueAmount { compute: MilliTflops(90_000), memory: Mebibytes(65_536) }),
        weight: 3,
        ..QueueSettings::new("vision")
    }
}

pub fn config() -> PoolConfig {
    PoolConfig {
        reference_precision: Precision::Fp32,
        block_size: MilliTflops(500),
        request_retention: Duration::from_secs(7200),
        request_limit: 1000,
        job_retention: Duration::from_secs(3600),
        ended_job_limit: 2000,
        job_limit: 3000,
        output_retention: Duration::from_secs(86_400),
        event_limit: 4000,
        preemptions_per_hour: 2,
        first_master_port: 30_000,
        master_ports: 100,
        ..PoolConfig::default()
    }
}

fn worker() -> PlannedWorker {
    let slice = Slice {
        card: CardId { node: NodeId(3), index: 1 },
        start: BlockIndex(5),
        length: BlockCount(9),
        memory: Mebibytes(2048),
        isolation: Isolation::Soft,
    };
    PlannedWorker { virtual_card: 1, node: NodeId(3), slices: vec![slice] }
}

fn plan() -> Plan {
    Plan {
        revision: Revision(901),
        parts: vec![
            PlanPart::Grant { job: JobId(7), workers: vec![worker(), worker()], victims: vec![JobId(5), JobId(6)] },
            PlanPart::Evict { job: JobId(8), node: NodeId(2) },
            PlanPart::Renumber { card: CardId { node: NodeId(1), index: 2 } },
            PlanPart::Move { job: JobId(9), workers: vec![worker()] },
        ],
    }
}

fn reports() -> Vec<WorkerReport> {
    let worker = |rank| Owner { allocation: AllocationId(12), epoch: Epoch(880), rank: Rank(rank) };
    let exit = WorkerExit {
        cause: StopCause::OutOfMemory,
        code: Some(-1),
        signal: Some(9),
        checkpointed: true,
        message: "killed".to_owned(),
        not_saved: String::new(),
        ended_at: LogTime(1_751_000_000_123),
    };
    let observations = [
        Observation::Running,
        Observation::Stopped(exit),
        Observation::Unconfirmed { message: "stuck in D".to_owned() },
    ];
    (0..).zip(observations).map(|(rank, observation)| WorkerReport { worker: worker(rank), observation }).collect()
}
