//! `tessera operator debug`.

use std::time::Instant;

use super::Desk;
use super::doctor::{files, host, report, towards};
use crate::args::{ClientArgs, DebugArgs};
use crate::bundle::archive::{self, Manifest};
use crate::bundle::{Wanted, collect};
use crate::exit::Exit;
use crate::failure::Failure;

/// Collects, and writes the file.
pub(super) async fn run(args: DebugArgs) -> Result<Exit, Failure> {
    let begin = Instant::now();
    let what = || format!("{} was not written", args.output.display());
    let failed = |error: std::io::Error| {
        Failure::from_error(Exit::Failed, what(), &error).next("name a file that is not there yet, where there is room")
    };
    let host = host(&args.host);
    let DebugArgs { server, context, timeout, .. } = &args;
    let client =
        ClientArgs { server: server.clone(), context: context.clone(), timeout: *timeout, ..ClientArgs::default() };
    let mut desk = Desk::open(&towards(&host, &client))?;
    let file = archive::create(&args.output).map_err(failed)?;
    let (report, facts) = report(&host, &desk).await;
    let own = host.member.iter().filter_map(|member| member.http);
    let own = own.chain(host.agent.iter().filter_map(|agent| agent.http_listen)).map(|address| address.to_string());
    let mut pages: Vec<String> = own.chain(args.http.iter().cloned()).collect();
    pages.dedup();
    let wanted = Wanted { pages, logs: args.log.clone(), files: files(&args.host), profile: args.profile };
    let parts = collect(&desk.client, report, facts, &wanted).await;
    let manifest = Manifest::of(&parts, begin.elapsed().as_secs_f64());
    archive::write(file, &parts, &manifest).map_err(failed)?;
    let (path, count) = (args.output.display(), manifest.files.len());
    desk.printer.write(&format!("{path}: {count} files, {} things are missing\n", manifest.missing.len()))?;
    for missing in &manifest.missing {
        desk.printer.write(&format!("  missing {}: {}\n", missing.what, missing.why))?;
    }
    Ok(Exit::Done)
}
