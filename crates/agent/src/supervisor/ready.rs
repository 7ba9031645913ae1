//! A worker that has everything and waits for the word to begin.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::unistd::pipe2;

use super::companion::Prepared;
use super::containment::Containment;
use super::image::Imaging;
use super::message::Launch;
use super::output::{Bounds, RotatedFile, Stream};
use super::pid_namespace::PidNamespace;
use super::program::{NoStart, Program, Waiting};
use crate::cgroup::WorkerGroup;
use crate::device::Ear;

/// A prepared worker: the program or image with which it begins, and the destination of its output.
pub(super) struct Ready {
    /// The program or image with which it begins.
    pub beginning: Beginning,
    /// The read ends of its output pipes, and the files that retain the output; `None`: the output is being read.
    pub outputs: Option<[(OwnedFd, RotatedFile); 2]>,
    /// The socket on which a program that begins as a process of ours says why it cannot go on.
    pub word: Option<Ear>,
    /// The process that is started before it and runs beside it; `None`: there is none, or it has been started.
    pub beside: Option<Prepared>,
}

pub(super) enum Beginning {
    /// A process that waits to become its program.
    Program(Box<Waiting>),
    /// Processes that are to be restored, and write into these pipes.
    Image([OwnedFd; 2]),
}

impl Ready {
    /// Makes everything ready, and what dumps and restores the worker where its job wants that.
    ///
    /// # Errors
    /// Whose fault it is that it cannot be, and why.
    pub fn make(
        launch: &Launch,
        containment: &Containment,
        namespace: io::Result<Option<PidNamespace>>,
    ) -> Result<(Self, Option<Imaging>), NoStart> {
        let namespace = namespace.map_err(|error| NoStart::by_node(format!("no PID namespace can be had: {error}")))?;
        let ready = Self::new(launch, containment.group(), namespace.as_ref())?;
        let imaging = namespace.map_or(Ok(None), |namespace| ready.imaging(launch, namespace))?;
        Ok((ready, imaging))
    }

    fn new(launch: &Launch, group: &WorkerGroup, namespace: Option<&PidNamespace>) -> Result<Self, NoStart> {
        let bounds = Bounds { file_bytes: launch.output_file_bytes, files: launch.output_files };
        let file = |stream| {
            let created = RotatedFile::create(Path::new("."), stream, bounds);
            created.map_err(|error| NoStart::by_node(format!("no file for its output: {error}")))
        };
        let pipe = || {
            let made = pipe2(OFlag::O_CLOEXEC);
            made.map_err(|error| NoStart::by_node(format!("no pipe for its output: {error}")))
        };
        let (stdout, stderr) = (file(Stream::Stdout)?, file(Stream::Stderr)?);
        let ((out, out_end), (err, err_end)) = (pipe()?, pipe()?);
        let ends = [out_end, err_end];
        let beside = launch.companion.as_ref().map(|plan| Prepared::new(launch, plan, &ends)).transpose()?;
        let (word, input) = if launch.has_device {
            let made = Ear::new().map_err(|error| NoStart::by_node(format!("no socket to its program: {error}")))?;
            (Some(made.0), Some(made.1))
        } else {
            (None, None)
        };
        let beginning = match &launch.image {
            Some(plan) if plan.from.is_some() => Beginning::Image(ends),
            _ => Beginning::Program(Box::new(Program::new(launch)?.fork(group, namespace, input, ends)?)),
        };
        Ok(Self { beginning, outputs: Some([(out, stdout), (err, stderr)]), word, beside })
    }

    fn imaging(&self, launch: &Launch, namespace: PidNamespace) -> Result<Option<Imaging>, NoStart> {
        let Some([(out, _), (err, _)]) = &self.outputs else { return Ok(None) };
        let made = Imaging::new(launch, namespace, [out, err]);
        made.map_err(|error| NoStart::by_node(format!("the pipes of its output cannot be looked at: {error}")))
    }
}
