use super::*;
use tessera_ledger::MilliCpus;

#[test]
fn shares_of_slices_and_of_the_host_add_up_and_nothing_said_is_no_limit() {
    let host = |cpu, memory| HostRequest { cpu: MilliCpus(cpu), memory: Mebibytes(memory) };
    let slices = |cpu_millicores, memory: Option<u64>| HostLimits {
        cpu_millicores,
        memory: memory.map(Mebibytes),
        ..HostLimits::default()
    };
    assert_eq!(limits_of(slices(None, None), host(0, 0), 9), Limits { processes: Some(9), ..Limits::default() });
    assert_eq!(
        limits_of(slices(None, None), host(1_500, 64), 9),
        Limits { cpu_millicores: Some(1_500), cpu_elastic: false, memory_bytes: Some(64 << 20), processes: Some(9) }
    );
    assert_eq!(
        limits_of(slices(Some(2_000), Some(100)), host(500, 28), 9),
        Limits { cpu_millicores: Some(2_500), cpu_elastic: false, memory_bytes: Some(128 << 20), processes: Some(9) }
    );
    assert_eq!(limits_of(slices(Some(2_000), None), host(0, 0), 9).memory_bytes, None);
}
