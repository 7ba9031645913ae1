//! The company of random jobs: their labels, their wishes about other jobs and nodes, and how they are laid over the
//! pool.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tessera_ledger::*;

use super::history::ZONES;

/// The label and the wishes of a job, as numbers that choose among names (`data`: one bit for each name), and its
/// packing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Company {
    pub label: Option<usize>,
    pub avoid: Option<usize>,
    pub together: Option<usize>,
    pub spread: Option<usize>,
    pub preferred: Option<usize>,
    pub data: usize,
    pub packing: Option<Packing>,
}

const PLACES: [&str; 3] = ["zone", "rack", "node"];
const APPS: [&str; 2] = ["noisy", "quiet"];
const DATA: [&str; 2] = ["images", "words"];

/// The names of data whose bits are set.
pub fn data(which: usize) -> impl Iterator<Item = String> {
    DATA.into_iter().enumerate().filter(move |(number, _)| which >> number & 1 == 1).map(|(_, name)| name.to_owned())
}

impl Company {
    pub fn enter(self, spec: &mut JobSpec) {
        let app = |which: usize| BTreeMap::from([("app".to_owned(), APPS[which % APPS.len()].to_owned())]);
        let place = |which: Option<usize>| which.map_or(String::new(), |which| PLACES[which % PLACES.len()].to_owned());
        spec.labels = self.label.map(app).unwrap_or_default();
        let affinity = &mut spec.affinity;
        affinity.avoid = self.avoid.map(app).unwrap_or_default();
        affinity.together = place(self.together);
        affinity.spread = place(self.spread);
        affinity.preferred = self.preferred.into_iter().map(preferred).collect();
        affinity.data = data(self.data).collect();
        spec.packing = self.packing;
    }
}

fn preferred(which: usize) -> PreferredLabel {
    let value = (which / PLACES.len() % ZONES as usize).to_string();
    PreferredLabel { key: PLACES[which % PLACES.len()].to_owned(), value, weight: 10 }
}

pub fn packing() -> impl Strategy<Value = Packing> {
    prop::sample::select(vec![Packing::Stack, Packing::Spread])
}

/// Most jobs have no wishes, as without them most is decided.
pub fn company() -> impl Strategy<Value = Company> {
    let some = |weight: f64| prop::option::weighted(weight, 0usize..6);
    let wishes =
        (some(0.4), some(0.3), some(0.3), some(0.3), some(0.3), 0usize..4, prop::option::weighted(0.2, packing()));
    let company = wishes.prop_map(|(label, avoid, together, spread, preferred, data, packing)| Company {
        label,
        avoid,
        together,
        spread,
        preferred,
        data,
        packing,
    });
    prop_oneof![2 => Just(Company::default()), 1 => company]
}
