//! The connections that reach a member, each on a seat; lines of other members go to consensus.

use std::io;

use futures::{Stream, StreamExt};
use tessera_connection::Inbound;
use tessera_connection::seated::{Seated, incoming};
use tessera_connection::seats::{Guest, Seats};
use tessera_consensus::{Consensus, Machine};

/// The connections that come in, without the lines of other members: those go to consensus, each on a seat too.
pub(crate) fn incoming_beside_lines<M: Machine>(
    inbound: Inbound,
    seats: Seats,
    consensus: Consensus<M>,
) -> impl Stream<Item = io::Result<Seated>> {
    // As many may be silent at a time as there are seats for those.
    let begun = incoming(inbound, seats).map(Seated::begun).buffer_unordered(usize::MAX);
    begun.filter_map(move |begun| {
        let others = match begun {
            Some((first, line)) if Consensus::<M>::is_line(first) => {
                let (io, seat, closing) = line.into_parts();
                let known = seat.clone();
                // Until it has shown that it is one it has the seat of somebody who has said nothing.
                let serving = consensus.serve_line(io, move || {
                    let _of_own = known.belongs_to(Guest::Own);
                });
                tokio::spawn(async move {
                    let _kept = seat;
                    tokio::select! {
                        () = closing => {}
                        () = serving => {}
                    }
                });
                None
            }
            Some((_, other)) => Some(Ok(other)),
            None => None,
        };
        std::future::ready(others)
    })
}
