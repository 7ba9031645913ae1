//! The conversation with a judge, word for word.

use tessera_simulate::online::{OnlineError, OnlineOptions, converse};
use tessera_simulate::placer::{Choice, Moves};

fn talk(policy: &str, lines: &str) -> Result<String, OnlineError> {
    let policy = Choice::named(policy).expect("a known policy");
    let mut answers = Vec::new();
    converse(lines.as_bytes(), &mut answers, OnlineOptions { policy, seed: 1, moves: Moves::None })?;
    Ok(String::from_utf8(answers).expect("text"))
}

const CLUSTER: &str = "N,alpha,16000,65536,2,T4\nN,beta,8000,65536,1,P100\n";

/// One arrival after the other; what fits nowhere is turned away, and nothing else is.
const ARRIVALS: &str = "\
S
A,0,whole,4000,1024,2,1000,
A,1,share,2000,1024,1,600,
A,2,share,2000,1024,1,400,P100|V100
A,3,share,2000,1024,1,1,
A,4,host,12000,1024,0,0,
A,5,host,1,1024,0,0,
A,6,other,1,1,1,500,A100
E
A,7,late,1,1,0,0,
";

const ANSWERS: &str = "\
place,0,alpha,0-1
place,1,beta,0
place,2,beta,0
reject,3,,
place,4,alpha,
place,5,beta,
reject,6,,
";

#[test]
fn every_placer_keeps_to_the_words_of_the_protocol() {
    for policy in Choice::all() {
        let answers = talk(policy.name(), &format!("{CLUSTER}T,2000,1,600,,3\n\n{ARRIVALS}")).expect("it goes well");
        assert_eq!(answers, ANSWERS, "{}", policy.name());
    }
}

#[test]
fn a_line_that_makes_no_sense_ends_the_conversation_with_its_number() {
    let cases = [
        ("X,1\n", "line 1: \"X\" is none of N, T, S, A and E"),
        ("N,a,1,1\n", "line 1: gpu_count is missing"),
        ("N,a,one,1,1,T4\n", "line 1: cpu_milli must be a number, not \"one\""),
        ("N,a,1,1,1,T4,more\n", "line 1: there is more than expected, from \"more\" on"),
        ("A,0,pod,1,1,0,0,\n", "line 1: an arrival comes after S"),
        ("S\nS\n", "line 2: N, T and S come before the first arrival, and S once"),
        ("S\nA,0,pod,1,1,2,500,\n", "line 2: several cards must be whole (1000), not 500"),
    ];
    for (lines, expected) in cases {
        assert_eq!(talk("best-fit", lines).expect_err("it is wrong").to_string(), expected);
    }
}

/// Counts what was flushed.
#[derive(Default)]
struct Pipe {
    written: Vec<u8>,
    flushed: Vec<usize>,
}

impl std::io::Write for &mut Pipe {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.written.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.flushed.push(self.written.len());
        Ok(())
    }
}

#[test]
fn answers_are_flushed_one_by_one() {
    let mut pipe = Pipe::default();
    let lines = format!("{CLUSTER}{ARRIVALS}");
    let policy = Choice::named("fgd").expect("a known policy");
    converse(lines.as_bytes(), &mut pipe, OnlineOptions { policy, seed: 0, moves: Moves::None }).expect("it goes well");
    assert_eq!(pipe.flushed.len(), 7);
    assert!(pipe.flushed.iter().all(|length| pipe.written[length - 1] == b'\n'));
}

#[test]
fn a_judge_may_tell_shares_of_what_was_seen() {
    let past = |weights: [&str; 2]| format!("T,4000,1,500,,{}\nT,8000,1,1000,,{}\n", weights[0], weights[1]);
    for policy in Choice::all() {
        let answers =
            |weights| talk(policy.name(), &format!("{CLUSTER}{}{ARRIVALS}", past(weights))).expect("it goes well");
        assert_eq!(answers(["0.75", "0.25"]), answers(["3", "1"]), "{}: only the ratio counts", policy.name());
    }
    let wrong = talk("tessera", &format!("{CLUSTER}T,4000,1,500,,-0.5\n{ARRIVALS}")).expect_err("less than nothing");
    assert!(wrong.to_string().contains("weight must be a number from 0"), "{wrong}");
}
