//! What members tell job by job, on a page of its own: it would be far too much for everybody who only wants to know
//! how the pool is.

use super::{Declaration, GaugeKind, Metric, Process, metrics};

metrics! { JobsPage;
    JOB_INFO: GaugeKind "tessera_job_info" ["job_id", "name", "queue", "submitter", "state"] "What a job is, and where it stands";
    JOB_AGE: GaugeKind "tessera_job_age_seconds" ["job_id", "queue"] "Time since a job was submitted";
    JOB_ATTEMPTS: GaugeKind "tessera_job_attempts" ["job_id", "queue"] "Attempts of a job so far";
    JOB_GRANTED: GaugeKind "tessera_job_granted_blocks" ["job_id", "queue"] "Blocks that a job holds";
    JOB_MEMORY_GRANTED: GaugeKind "tessera_job_memory_granted_bytes" ["job_id", "queue"] "Card memory that a job holds";
    JOB_WORKERS: GaugeKind "tessera_job_workers" ["job_id", "queue"] "Workers of a job that are not over";
    JOB_UTILIZATION: GaugeKind "tessera_job_utilization_ratio" ["job_id", "queue"]
        "Share of what a job may compute on its blocks that it computed; 1 is all of it; the leader tells";
    JOB_MEMORY_USED: GaugeKind "tessera_job_memory_used_bytes" ["job_id", "queue"]
        "Card memory that a job has in use; the leader tells";
    JOB_PROCESSORS: GaugeKind "tessera_job_processors" ["job_id", "queue"]
        "Processors of hosts that the workers of a job keep busy; the leader tells";
    JOB_HOST_MEMORY: GaugeKind "tessera_job_host_memory_used_bytes" ["job_id", "queue"]
        "Memory of hosts that the workers of a job use; the leader tells";
    JOBS_LEFT_OUT: GaugeKind "tessera_jobs_left_out" []
        "Jobs that were asked for and are not on this page, because it has its limit";
}
