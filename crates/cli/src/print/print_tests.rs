use super::*;
use crate::view::{JobView, MutationView};
use std::sync::{Arc, Mutex};
use tessera_api::v1;

#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no holder panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn printed(format: Format, color: bool, print: impl FnOnce(&mut Printer)) -> String {
    let paper = Paper::default();
    let mut printer = Printer::to(Box::new(paper.clone()), format, color, Clock::at(1_000_100));
    print(&mut printer);
    let bytes = paper.0.lock().expect("no holder panics").clone();
    String::from_utf8(bytes).expect("text")
}

fn time(seconds: i64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds, nanos: 0 })
}

fn jobs() -> Vec<JobView> {
    let spec = v1::JobSpec {
        name: "train".to_owned(),
        queue: "default".to_owned(),
        command: vec!["python".to_owned(), "train.py".to_owned()],
        gang: 3,
        priority: Some(70),
        virtual_card: Some(v1::VirtualCardRequest {
            milli_tflops: 12_500,
            memory_mib: 4096,
            precision: v1::Precision::Fp16 as i32,
            span: v1::Span::Node as i32,
            ..Default::default()
        }),
        ..Default::default()
    };
    let worker = v1::Worker {
        node_name: "node-0".to_owned(),
        state: v1::WorkerState::Running as i32,
        slices: vec![v1::SliceView {
            slice: Some(v1::Slice { card_index: 0, memory_mib: 4096, ..Default::default() }),
            kind: v1::CardKind::Gpu as i32,
            first_block_number: 1,
            last_block_number: 13,
            ..Default::default()
        }],
        ..Default::default()
    };
    let running = v1::Job {
        id: 12,
        spec: Some(spec.clone()),
        state: v1::JobState::Running as i32,
        reason: Some(v1::Reason { code: "STARTED".to_owned(), sentence: "all workers run".to_owned() }),
        submitter: "ada".to_owned(),
        submitted_at: time(1_000_000),
        started_at: time(1_000_001),
        attempts: 1,
        allocation: Some(v1::Allocation {
            id: 5,
            epoch: 99,
            phase: v1::AllocationPhase::Active as i32,
            attempt: 1,
            workers: vec![worker],
            master_address: "127.0.0.1".to_owned(),
            master_port: 20_000,
            ..Default::default()
        }),
        ..Default::default()
    };
    let failed = v1::Job {
        id: 7,
        spec: Some(v1::JobSpec { gang: 1, name: "a".to_owned(), ..spec }),
        state: v1::JobState::Failed as i32,
        submitted_at: time(900_000),
        started_at: time(900_010),
        ended_at: time(900_075),
        history: vec![v1::Attempt { number: 1, exit_code: Some(3), ..Default::default() }],
        ..Default::default()
    };
    vec![running.into(), failed.into()]
}

#[test]
fn a_table_is_aligned_and_without_trailing_blanks() {
    let table = printed(Format::Table, false, |printer| printer.list(&jobs()).expect("printed"));
    insta::assert_snapshot!(table, @r"
    JOB  NAME   QUEUE    STATE    REASON   TFLOPS  PRIO    AGE    RAN  NODES
     12  train  default  running  STARTED  3x12.5    70  1m40s  1m39s  node-0
      7  a      default  failed              12.5    70   1d3h  1m05s  -
    ");
}

#[test]
fn a_row_says_what_a_job_waits_for_where_that_is_known() {
    let mut jobs = jobs();
    jobs[0].waits_for = Some("COMPUTE_SHORT".to_owned());
    let table = printed(Format::Table, false, |printer| printer.list(&jobs).expect("printed"));
    assert!(table.contains("running  COMPUTE_SHORT  3x12.5"), "{table}");
}

#[test]
fn an_empty_table_has_its_header() {
    let table = printed(Format::Table, false, |printer| printer.list::<JobView>(&[]).expect("printed"));
    assert_eq!(table, "JOB  NAME  QUEUE  STATE  REASON  TFLOPS  PRIO  AGE  RAN  NODES\n");
}

/// A text that clears the screen, names the window anew, hides a line and turns what follows round.
const EVIL: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{7f}\r\u{202e}\u{2066}\u{200f}\u{2028}end";

/// A job whose every text is another's.
fn evil() -> JobView {
    let text = || EVIL.to_owned();
    let spec = v1::JobSpec {
        name: text(),
        queue: text(),
        command: vec![text(), text()],
        working_directory: text(),
        environment: [(text(), text())].into(),
        labels: [(text(), text())].into(),
        node_labels: [(text(), text())].into(),
        virtual_card: Some(v1::VirtualCardRequest {
            models: vec![text()],
            vendors: vec![text()],
            ..Default::default()
        }),
        ..Default::default()
    };
    let reason = || Some(v1::Reason { code: text(), sentence: text() });
    let attempt = v1::Attempt { reason: reason(), nodes: vec![text()], ..Default::default() };
    let (reason, history) = (reason(), vec![attempt]);
    v1::Job { id: 1, spec: Some(spec), reason, submitter: text(), history, ..Default::default() }.into()
}

fn card() -> CardBlocksView {
    v1::CardBlocks { node_name: EVIL.to_owned(), model: EVIL.to_owned(), ..Default::default() }.into()
}

#[test]
fn what_others_wrote_is_spelled_in_every_format() {
    let colours = |text: &str| text.replace("\u{1b}[0m", "").replace("\u{1b}[1m", "");
    for color in [false, true] {
        for format in [Format::Table, Format::Wide, Format::Name, Format::Json, Format::Jsonl, Format::Yaml] {
            let prints: [&dyn Fn(&mut Printer); 5] = [
                &|printer| printer.list(&[evil()]).expect("printed"),
                &|printer| printer.one(&evil()).expect("printed"),
                &|printer| printer.row(&evil()).expect("printed"),
                &|printer| printer.map(&[card()]).expect("printed"),
                &|printer| printer.write(EVIL).expect("printed"),
            ];
            for (place, print) in prints.iter().enumerate() {
                let text = colours(&printed(format, color, |printer| print(printer)));
                let obeyed: Vec<char> = text.chars().filter(|c| *c != '\n' && shown::is_obeyed(*c)).collect();
                assert!(obeyed.is_empty(), "{format:?} {place}: {obeyed:?} in {text:?}");
            }
        }
    }
}

#[test]
fn data_says_what_was_written_and_output_is_left_alone() {
    let json = printed(Format::Json, false, |printer| printer.one(&evil()).expect("printed"));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).expect("JSON")["name"], EVIL);
    let yaml = printed(Format::Yaml, false, |printer| printer.one(&evil()).expect("printed"));
    assert_eq!(serde_norway::from_str::<serde_json::Value>(&yaml).expect("YAML")["name"], EVIL);
    let output = printed(Format::Table, false, |printer| printer.output_of_job(EVIL.as_bytes()).expect("printed"));
    assert_eq!(output, EVIL);
}

#[test]
fn csv_is_left_alone_for_programs_and_spelled_on_a_terminal() {
    let line = format!("key,{EVIL}\n");
    let piped = printed(Format::Table, false, |printer| printer.csv(&line).expect("printed"));
    assert_eq!(piped, line);
    let told = printed(Format::Table, false, |printer| {
        printer.obeyed = true;
        printer.csv(&line).expect("printed");
    });
    assert_eq!(told, shown::lines(&line));
}

#[test]
fn columns_of_wide_letters_stand_below_each_other() {
    let cards = ["训练", "abcd"].map(|model| {
        let (number, state) = (7, v1::BlockState::Free.into());
        let run = v1::BlockRun {
            first_block_number: number,
            last_block_number: number,
            blocks: 1,
            state,
            ..Default::default()
        };
        let runs = vec![run];
        v1::CardBlocks { node_name: "n".to_owned(), model: model.to_owned(), runs, ..Default::default() }.into()
    });
    let map = printed(Format::Table, false, |printer| printer.map(&cards).expect("printed"));
    let numbers: Vec<usize> =
        map.lines().skip(1).filter_map(|line| line.split_once("7-7")).map(|(before, _)| width::width(before)).collect();
    assert!(numbers.len() == 2 && numbers[0] == numbers[1], "{numbers:?}: {map}");

    let mut page = Page::new(false, false);
    page.line("训练", "x");
    page.line("abcd", "x");
    let places: Vec<usize> = page.finish().lines().map(|line| width::width(line.trim_end_matches('x'))).collect();
    assert_eq!(places[0], places[1]);
}

#[test]
fn names_can_be_given_back_to_commands() {
    let names = printed(Format::Name, false, |printer| printer.list(&jobs()).expect("printed"));
    assert_eq!(names, "job/12\njob/7\n");
    assert!(names.lines().all(|name| name.parse::<crate::args::JobNumber>().is_ok()));
}

#[test]
fn colour_is_put_on_states_only_when_wanted() {
    let plain = printed(Format::Table, false, |printer| printer.list(&jobs()).expect("printed"));
    let colored = printed(Format::Table, true, |printer| printer.list(&jobs()).expect("printed"));
    assert!(!plain.contains('\u{1b}'));
    let uncolored = |text: &str| {
        let mut pieces = text.split('\u{1b}');
        let first = pieces.next().unwrap_or_default().to_owned();
        pieces.fold(first, |text, piece| text + piece.split_once('m').map_or("", |(_, rest)| rest))
    };
    assert_eq!(colored.matches("\u{1b}[38;5;").count(), 2, "two states are painted: {colored:?}");
    let bare: String = uncolored(&colored).lines().map(|line| format!("{}\n", line.trim_end())).collect();
    assert_eq!(bare, plain, "colour does not move columns");
}

#[test]
fn json_has_stable_names_and_lists_are_arrays() {
    let json = printed(Format::Json, false, |printer| printer.list(&jobs()).expect("printed"));
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(value[0]["id"], 12);
    assert_eq!(value[0]["virtual_card"]["tflops"], 12.5);
    assert_eq!(value[0]["allocation"]["workers"][0]["slices"][0]["last_block"], 13);
    assert_eq!(value[1]["exit_code"], 3);
    assert_eq!(value[1]["allocation"], serde_json::Value::Null);
    // Names may come, none may go: programs read them.
    let names = "affinity allocation attempts changed_at checkpoint checkpoint_mode command ended_at environment \
        exit_code gang gang_min held history host id labels max_retries min_runtime_seconds move name \
        node_labels not_before on_disconnect output_retention_seconds packing parked preempted_at preemptible \
        priority queue reason request_id retries retry revision script signal started_at state submitted_at \
        submitter time_limit_seconds traceparent virtual_card waits_for working_directory";
    let gone: Vec<&str> = names.split(' ').filter(|name| value[0].get(*name).is_none()).collect();
    assert!(gone.is_empty(), "{gone:?} are not printed any more");
}

#[test]
fn json_lines_are_one_object_each() {
    let lines = printed(Format::Jsonl, false, |printer| printer.list(&jobs()).expect("printed"));
    let ids: Vec<i64> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["id"].as_i64().expect("a number"))
        .collect();
    assert_eq!(ids, [12, 7]);
}

#[test]
fn yaml_says_the_same() {
    let change = MutationView { name: "job/12".to_owned(), done: "cancelled".to_owned(), revision: 9 };
    let yaml = printed(Format::Yaml, false, |printer| printer.list(&[change]).expect("printed"));
    assert_eq!(yaml, "- name: job/12\n  done: cancelled\n  revision: 9\n");
}

#[test]
fn a_page_shows_everything_about_a_job() {
    let page = printed(Format::Table, false, |printer| printer.one(&jobs()[0]).expect("printed"));
    insta::assert_snapshot!(page);
}
