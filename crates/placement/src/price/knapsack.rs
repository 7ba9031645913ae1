//! The best use of one dimension of a card: unbounded knapsacks, one for each lane.

use super::bids::{Bids, Rivals};
use super::lanes::{self, LANES, Lanes, MOST_OF_CARD};

/// The worth of any room of one dimension.
#[derive(Clone, Debug)]
pub(crate) struct Knapsack {
    rivals: Vec<Rivals>,
    worth: Vec<Lanes>,
    /// The positions of those that are put anywhere.
    useful: Vec<usize>,
}

impl Knapsack {
    /// An empty one for rooms of up to `steps`, for items of such sizes.
    pub(crate) fn new(steps: usize, items: impl Iterator<Item = (u16, usize)>) -> Self {
        let rivals = Rivals::by_size(items.filter(|(_, size)| (1..=steps).contains(size)));
        Self { rivals, worth: vec![[0; LANES]; steps + 1], useful: Vec::new() }
    }

    pub(crate) fn fill(&mut self, bids: &Bids) {
        self.useful.clear();
        // The same side by side, because they are gone through for every room.
        let mut best: Vec<(usize, Lanes)> = Vec::with_capacity(self.rivals.len());
        self.rivals.iter_mut().for_each(|rivals| rivals.bid(bids));
        let mut all = self.rivals.iter().enumerate().peekable();
        for room in 1..self.worth.len() {
            let mut worth = self.worth[room - 1];
            for (size, bid) in &best {
                let rest = &self.worth[room - size];
                for lane in 0..LANES {
                    worth[lane] = worth[lane].max(rest[lane] + bid[lane]);
                }
            }
            // Requests that are worth no more in any lane than smaller ones in their place are never put there.
            if let Some((position, rivals)) = all.next_if(|(_, rivals)| rivals.size == room)
                && lanes::raise(&mut worth, &rivals.worth)
            {
                self.useful.push(position);
                best.push((room, rivals.worth));
            }
            self.worth[room] = worth.map(|worth| worth.min(MOST_OF_CARD));
        }
    }

    pub(crate) fn of(&self, room: usize) -> &Lanes {
        &self.worth[room.min(self.worth.len() - 1)]
    }

    /// The next use of `room` in a lane: the position of the rivals that get some of it (`None`: one step of it stays
    /// unused), and the room that is left.
    fn step(&self, room: usize, lane: usize) -> (Option<usize>, usize) {
        let worth = self.worth[room][lane];
        if self.worth[room - 1][lane] == worth {
            return (None, room - 1);
        }
        let useful = self.useful.iter().map(|position| (*position, &self.rivals[*position]));
        let mut fits = useful.take_while(|(_, rivals)| rivals.size <= room);
        let chosen = fits.find(|(_, rivals)| self.worth[room - rivals.size][lane] + rivals.worth[lane] == worth);
        chosen.map_or((None, room - 1), |(position, rivals)| (Some(position), room - rivals.size))
    }

    /// Adds to `supply` what rooms are filled with, to be rounded; `rooms` are weights by room and lane and are
    /// used up.
    pub(crate) fn empty_into(&self, rooms: &mut [[i64; LANES]], bids: &Bids, supply: &mut [i64]) {
        let mut got = vec![[0; LANES]; self.rivals.len()];
        for room in (1..rooms.len()).rev() {
            let weights = std::mem::replace(&mut rooms[room], [0; LANES]);
            for (lane, weight) in weights.into_iter().enumerate().filter(|(_, weight)| *weight != 0) {
                let (rivals, rest) = self.step(room, lane);
                if let Some(rivals) = rivals {
                    got[rivals][lane] += weight;
                }
                rooms[rest][lane] += weight;
            }
        }
        self.rivals.iter().zip(&got).for_each(|(rivals, got)| rivals.divide(got, bids, supply));
    }
}
