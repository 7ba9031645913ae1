//! Many commands with one wait: whoever has a thousand of them at once pays for a few proposals, not for a thousand.

use bytes::Bytes;
use futures::future::join_all;
use tokio::time::Instant;

use crate::config::ConsensusConfig;
use crate::error::ProposeError;
use crate::handle::{Applied, Consensus};
use crate::machine::Machine;
use crate::propose::Commands;

impl<M: Machine> Consensus<M> {
    /// Proposes commands as [`propose`](Consensus::propose) does each of them, in as few entries as hold them; they
    /// keep their order. Answers one result per command, in the same order, when the last of them is known. What shares
    /// an entry shares its fate.
    pub async fn propose_all(
        &self,
        commands: Vec<Bytes>,
        deadline: Instant,
    ) -> Vec<Result<Applied<M::Outcome>, ProposeError>> {
        let runs = runs(commands, &self.inner.shared.config);
        // Polled in order, so handed in in order.
        let answers = join_all(runs.into_iter().map(|run| async move {
            let commands = run.len();
            (commands, self.propose_together(run, deadline).await)
        }));
        let mut each = Vec::new();
        for (commands, answer) in answers.await {
            match answer {
                Ok(Applied { index, term, entered, outcome }) => {
                    each.extend(outcome.into_iter().map(|outcome| Ok(Applied { index, term, entered, outcome })));
                }
                Err(error) => each.extend(std::iter::repeat_n(error, commands).map(Err)),
            }
        }
        each
    }
}

/// The commands in their order, cut into what fits into an entry each. One that no entry holds is alone, to be refused
/// by itself.
fn runs(commands: Vec<Bytes>, limits: &ConsensusConfig) -> Vec<Commands> {
    let mut runs: Vec<Commands> = Vec::new();
    let mut bytes = 0;
    for command in commands {
        bytes += command.len();
        match runs.last_mut() {
            Some(run) if run.len() < limits.max_batch_commands && bytes <= limits.max_batch_bytes => run.push(command),
            _ => {
                bytes = command.len();
                runs.push(Commands::from_elem(command, 1));
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_cut_into_what_entries_hold() {
        let limits = ConsensusConfig { max_batch_commands: 3, max_batch_bytes: 100, ..ConsensusConfig::default() };
        let cut = |lengths: &[usize]| -> Vec<Vec<usize>> {
            let commands = lengths.iter().map(|length| Bytes::from(vec![0; *length])).collect();
            runs(commands, &limits).iter().map(|run| run.iter().map(Bytes::len).collect()).collect()
        };
        assert_eq!(cut(&[1, 2, 3, 4]), [vec![1, 2, 3], vec![4]]);
        assert_eq!(cut(&[50, 50, 1]), [vec![50, 50], vec![1]]);
        assert_eq!(cut(&[1, 101, 1, 99, 2]), [vec![1], vec![101], vec![1, 99], vec![2]]);
        assert!(cut(&[]).is_empty());
    }
}
