//! Every format is read for what it says, and every error says where it is.

use std::io::Write as _;
use std::path::Path;

use tempfile::NamedTempFile;
use tessera_simulate::trace::{JobFormat, TraceError, read_cluster, read_jobs, read_nodes};

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a temporary file");
    file.write_all(text.as_bytes()).expect("it can be written");
    file
}

/// The part of an error behind the name of the file.
fn place(error: &TraceError, path: &Path) -> String {
    error.to_string().replace(&path.display().to_string(), "FILE")
}

#[test]
fn openb_nodes_and_pods_are_read() {
    let nodes =
        file("sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,96000,786432,8,G2\nn2,8000,1024,0,\n");
    let nodes = read_nodes(nodes.path()).expect("it can be read");
    assert_eq!(nodes.len(), 3);
    assert_eq!((nodes[1].name.as_str(), nodes[1].cpu_milli, nodes[1].memory_mib), ("n1", 96_000, 786_432));
    assert_eq!((nodes[1].cards, nodes[1].model.as_str(), nodes[1].card_memory_mib), (8, "G2", None));
    assert_eq!(nodes[2].cards, 0);

    let pods = file(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n\
         late,6000,12288,1,460,,LS,Running,500,900,600\n\
         early,12000,16384,1,1000,V100M16|V100M32,LS,Running,100,400,\n\
         host,1000,0,0,0,,BE,Running,200,300,210\n\
         many,8000,1,8,1000,,LS,Running,300,301,300\n",
    );
    let list = read_jobs(pods.path()).expect("it can be read");
    assert_eq!((list.format, list.timed), (JobFormat::Openb, true));
    let names: Vec<&str> = list.jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["early", "host", "many", "late"], "in order of submission");
    let [early, host, many, late] = &list.jobs[..] else { panic!("four jobs") };
    assert_eq!((early.submitted_ms, early.runtime_ms), (0, Some(300_000)), "never placed: counted from its creation");
    assert_eq!(early.ask.models.iter().map(String::as_str).collect::<Vec<_>>(), ["V100M16", "V100M32"]);
    assert!(early.ask.is_whole() && many.ask.is_whole() && late.ask.is_fraction() && !host.ask.is_whole());
    assert_eq!((late.submitted_ms, late.runtime_ms), (400_000, Some(300_000)), "runs from when it was placed");
    assert_eq!((many.ask.cards, many.ask.all_cards_milli()), (8, 8000));
}

#[test]
fn short_openb_lists_have_no_times() {
    let pods = file("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1000,1,1,810\nb,1000,1,0,0\n");
    let list = read_jobs(pods.path()).expect("it can be read");
    assert!(!list.timed);
    assert_eq!(list.jobs[0].runtime_ms, None);
    assert_eq!(list.jobs[0].ask.card_milli, 810);
}

#[test]
fn philly_jobs_are_read_and_large_ones_become_gangs() {
    let jobs = file(
        "timestamp,duration,num_gpus,gpu_time,cluster\n\
         2017-10-09 07:01:55,66.5,1,66.5,11cb48\n\
         2017-10-09 07:00:55,10,16,160,6214e9\n\
         2017-10-10 07:00:55,10,12,120,6214e9\n",
    );
    let list = read_jobs(jobs.path()).expect("it can be read");
    assert_eq!((list.format, list.timed), (JobFormat::Philly, true));
    let shapes: Vec<_> = list.jobs.iter().map(|job| (job.submitted_ms, job.workers, job.ask.cards)).collect();
    assert_eq!(shapes, [(0, 2, 8), (60_000, 1, 1), (86_400_000, 2, 6)]);
    assert_eq!((list.jobs[1].queue.as_str(), list.jobs[1].runtime_ms), ("11cb48", Some(66_500)));
}

#[test]
fn our_own_format_is_read_with_and_without_what_may_be_left_out() {
    let nodes = file("node,cards,model,card_memory_mib,cpu_milli,memory_mib\na,4,H100,81920,64000,1000\n");
    assert_eq!(read_nodes(nodes.path()).expect("it can be read")[0].card_memory_mib, Some(81_920));
    let least = file("job,cards,card_milli,cpu_milli,memory_mib\nx,1,250,0,0\n");
    let list = read_jobs(least.path()).expect("it can be read");
    assert_eq!((list.format, list.timed), (JobFormat::Plain, false));
    assert_eq!((list.jobs[0].queue.as_str(), list.jobs[0].priority, list.jobs[0].workers), ("default", 50, 1));
    let all = file(
        "job,cards,card_milli,cpu_milli,memory_mib,submitted_s,runtime_s,limit_s,\
         workers,card_memory_mib,models,queue,priority,preemptible\n\
         x,1,1000,0,0,0.5,1,,,,,,,\n\
         y,2,1000,4000,512,2,60,45.5,3,1024,H100,red,90,false\n",
    );
    let list = read_jobs(all.path()).expect("it can be read");
    assert_eq!(list.clone().in_one_queue().jobs[1].queue, "default");
    assert_eq!((list.jobs[0].submitted_ms, list.jobs[0].limit_ms), (0, None), "the first is the beginning");
    let job = &list.jobs[1];
    assert_eq!((job.limit_ms, job.length_ms()), (Some(45_500), 45_500), "it ends at its limit");
    assert_eq!((job.submitted_ms, job.runtime_ms, job.workers), (1500, Some(60_000), 3));
    assert_eq!((job.queue.as_str(), job.priority, job.preemptible), ("red", 90, false));
    assert_eq!((job.ask.card_memory_mib, job.ask.models.len()), (1024, 1));
}

#[test]
fn errors_name_file_line_and_column() {
    let cases = [
        (
            "sn,cpu_milli,memory_mib,gpu,model\na,1,2,3,x\nb,1,two,3,x\n",
            "FILE:3: column memory_mib: invalid digit found in string",
        ),
        ("sn,cpu_milli,memory_mib,gpu,model\na,1,2,3\n", "FILE:2: it has 4 columns, the header 5"),
        (
            "sn,cpu_milli,memory_mib,gpu,model\na,1,2,3,x\na,1,2,3,x\n",
            "FILE:3: column sn: \"a\" is no new name; each node needs its own",
        ),
        (
            "sn,cpu_milli,memory_mib,gpu,model\na,1,2,5000,x\n",
            "FILE:2: column gpu: 5000 cards are too many; a node has at most 1000",
        ),
    ];
    for (text, expected) in cases {
        let file = file(text);
        let error = read_nodes(file.path()).expect_err("it is wrong");
        assert_eq!(place(&error, file.path()), expected);
    }
    let cases = [
        (
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,2,1,1001\n",
            "FILE:2: column gpu_milli: 1001 is no share of a card; it must be 1 to 1000",
        ),
        (
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,2,2,500\n",
            "FILE:2: column gpu_milli: several cards must be whole (1000), not 500",
        ),
        (
            "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,-1,1,1,x\n",
            "FILE:2: column duration: -1 is no number of seconds from 0 to 316224000",
        ),
        (
            "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,1,0,1,x\n",
            "FILE:2: column num_gpus: a job has at least one card",
        ),
        (
            "job,cards,card_milli,cpu_milli,memory_mib,priority\na,1,2,3,4,101\n",
            "FILE:2: column priority: must be 0 to 100, not 101",
        ),
    ];
    for (text, expected) in cases {
        let file = file(text);
        let error = read_jobs(file.path()).expect_err("it is wrong");
        assert_eq!(place(&error, file.path()), expected);
    }
    let stamp = file("timestamp,duration,num_gpus,gpu_time,cluster\nyesterday,1,1,1,x\n");
    let error = read_jobs(stamp.path()).expect_err("it is wrong");
    assert!(place(&error, stamp.path()).starts_with("FILE:2: column timestamp: "), "{error}");
}

#[test]
fn what_is_no_list_is_told_apart_from_what_is_not_there() {
    let strange = file("a,b\n1,2\n");
    assert!(matches!(read_jobs(strange.path()), Err(TraceError::UnknownFormat { what: "jobs", .. })));
    assert!(matches!(read_nodes(strange.path()), Err(TraceError::UnknownFormat { what: "nodes", .. })));
    assert!(matches!(read_jobs(Path::new("/nowhere/at/all.csv")), Err(TraceError::Io { .. })));
}

#[test]
fn a_size_stands_for_a_list_of_nodes() {
    let nodes = read_cluster(Path::new("3x8")).expect("a size");
    assert_eq!((nodes.len(), nodes[2].cards, nodes[2].name.as_str()), (3, 8, "node-2"));
    assert!(matches!(read_cluster(Path::new("0x8")), Err(TraceError::Io { .. })), "no size, and no such file");
}
