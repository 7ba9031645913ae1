//! All cards of a node over all its mechanisms, indexed in the order in which blocks are numbered: gpu, npu, fpga, cpu.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tessera_ledger::{CardDescription, CardHealth, MilliTflops, Owner, Precision};

use crate::accelerators::{AcceleratorBackend, Interpreter};
use crate::backend::{Backend, Hardware, HealthReport, HostUse, Probe, Sample, SliceSample};
use crate::caps::{Caps, TimeSlicing};
use crate::cpu::CpuBackend;
use crate::error::DeviceError;
use crate::host::HostRoot;
use crate::inventory::Inventory;
use crate::simulated::SimulatedBackend;
use crate::slices::{Attach, GrantedSlice, WorkerSlices};

/// The cards of a node.
pub struct NodeDevices {
    backends: Vec<Box<dyn Backend>>,
    cards: Vec<CardDescription>,
    /// For every card of the node: its backend, and its index there.
    places: Vec<(usize, u32)>,
    held: BTreeMap<Owner, Vec<GrantedSlice>>,
}

impl NodeDevices {
    /// A node without cards.
    #[must_use]
    pub fn none() -> Self {
        Self { backends: Vec::new(), cards: Vec::new(), places: Vec::new(), held: BTreeMap::new() }
    }

    /// The processors of this host, measured.
    ///
    /// # Errors
    /// When the host cannot be read or measured.
    pub fn local(host: HostRoot) -> Result<Self, DeviceError> {
        Self::of(vec![Box::new(CpuBackend::new(host))])
    }

    /// The real cards of this host: the accelerators that an interpreter with PyTorch finds, and the processors.
    ///
    /// # Errors
    /// When the interpreter does not answer, or the host cannot be read or measured.
    pub fn with_accelerators(
        host: HostRoot,
        interpreter: Interpreter,
        slicing: TimeSlicing,
    ) -> Result<Self, DeviceError> {
        let accelerators = AcceleratorBackend::new(host.clone(), interpreter, slicing);
        Self::of(vec![Box::new(accelerators), Box::new(CpuBackend::new(host))])
    }

    /// The simulated cards that an inventory file declares for a node. `host` says which node, and where its faults
    /// file ([`crate::simulated::FAULTS_FILE`]) lies.
    ///
    /// # Errors
    /// When the file cannot be used, or does not know the node.
    pub fn declared(inventory: &Path, host: &HostRoot) -> Result<Self, DeviceError> {
        let declared = Inventory::load(inventory)?;
        let Some(node) = declared.node(host.node()) else {
            let names: Vec<&str> = declared.nodes.iter().map(|node| node.name.as_str()).collect();
            return Err(DeviceError::NodeNotDeclared {
                path: inventory.to_owned(),
                node: host.node().to_owned(),
                declared: names.join(", "),
            });
        };
        Self::of(vec![Box::new(SimulatedBackend::new(node.clone(), host))])
    }

    /// The cards of several mechanisms; those that cannot work here are left out.
    ///
    /// # Errors
    /// When a mechanism that is present cannot read or measure its cards.
    pub fn of(mut backends: Vec<Box<dyn Backend>>) -> Result<Self, DeviceError> {
        let mut found = Vec::new();
        for (place, backend) in backends.iter_mut().enumerate() {
            if let Probe::Absent(reason) = backend.probe() {
                tracing::info!(backend = backend.name(), reason, "no cards by this mechanism");
                continue;
            }
            for card in backend.discover()? {
                let measured = measure(backend.as_mut(), card)?;
                found.push((place, measured));
            }
        }
        found.sort_by_key(|(place, card)| (card.kind, *place, card.index));
        let mut devices = Self { backends, ..Self::none() };
        devices.places = found.iter().map(|(place, card)| (*place, card.index)).collect();
        let places = devices.places.clone();
        for (index, (place, mut card)) in found.into_iter().enumerate() {
            card.index = to_index(index);
            for link in &mut card.links {
                let peer = places.iter().position(|known| *known == (place, link.peer_index));
                link.peer_index = peer.map_or(link.peer_index, to_index);
            }
            devices.cards.push(card);
        }
        Ok(devices)
    }

    /// The cards, in order of index.
    #[must_use]
    pub fn cards(&self) -> &[CardDescription] {
        &self.cards
    }

    /// The capabilities of a card; `None`: the node has no such card.
    #[must_use]
    pub fn caps(&self, index: u32) -> Option<Caps> {
        let (place, _) = self.places.get(index as usize)?;
        Some(self.backends[*place].caps(&self.cards[index as usize]))
    }

    /// Properties of a card beyond its description; `None`: the node has no such card.
    #[must_use]
    pub fn hardware(&self, index: u32) -> Option<Hardware> {
        let (place, own) = *self.places.get(index as usize)?;
        let card = CardDescription { index: own, ..self.cards[index as usize].clone() };
        Some(self.backends[place].hardware(&card))
    }

    /// Readings of a worker's use of its slices: one for each card of which it holds a slice and whose mechanism can
    /// tell.
    pub fn slices(&mut self, owner: Owner, host: HostUse, since_start: Duration) -> Vec<SliceSample> {
        let places = &self.places;
        let readings = self.backends.iter_mut().enumerate().flat_map(|(place, backend)| {
            let rename = move |mut slice: SliceSample| {
                slice.card_index = to_index(places.iter().position(|known| *known == (place, slice.card_index))?);
                Some(slice)
            };
            backend.slices(owner, host, since_start).into_iter().filter_map(rename)
        });
        readings.collect()
    }

    /// Newest readings of all cards, without what is no number.
    pub fn sample(&mut self, since_start: Duration) -> Vec<Sample> {
        let (places, cards) = (&self.places, &self.cards);
        let readings = self.backends.iter_mut().enumerate().flat_map(|(place, backend)| {
            let rename = move |mut sample: Sample| {
                let index = places.iter().position(|known| *known == (place, sample.card_index))?;
                sample.card_index = to_index(index);
                sample.without_blanks(cards[index].memory)
            };
            backend.sample(since_start).into_iter().filter_map(rename)
        });
        let mut readings: Vec<Sample> = readings.collect();
        readings.sort_by_key(|sample| sample.card_index);
        readings
    }

    /// Looks at the health of all cards and gives those whose health is another than before.
    pub fn changed_health(&mut self) -> Vec<HealthReport> {
        let mut changed = Vec::new();
        for (place, backend) in self.backends.iter_mut().enumerate() {
            for mut report in backend.health() {
                let Some(index) = self.places.iter().position(|known| *known == (place, report.card_index)) else {
                    continue;
                };
                if self.cards[index].health != report.health {
                    self.cards[index].health = report.health;
                    report.card_index = to_index(index);
                    changed.push(report);
                }
            }
        }
        changed
    }

    /// The health of a card at the last look; `None`: the node has no such card.
    #[must_use]
    pub fn health(&self, index: u32) -> Option<CardHealth> {
        self.cards.get(index as usize).map(|card| card.health)
    }

    /// Prepares what a worker holds, over all mechanisms.
    ///
    /// # Errors
    /// When a slice is of a card that the node does not have; nothing is prepared then.
    pub fn prepare(&mut self, held: &WorkerSlices) -> Result<Attach, DeviceError> {
        let mut parts = vec![Vec::new(); self.backends.len()];
        for slice in &held.slices {
            let no_such_card = || DeviceError::NoSuchCard { index: slice.card_index, count: self.cards.len() };
            let (place, index) = *self.places.get(slice.card_index as usize).ok_or_else(no_such_card)?;
            let mut own = *slice;
            own.card_index = index;
            parts[place].push(own);
        }
        let hidden: BTreeMap<String, String> = self.backends.iter().flat_map(|backend| backend.hidden()).collect();
        let mut attach = Attach { environment: hidden.clone(), hidden, ..Attach::default() };
        for (backend, slices) in self.backends.iter_mut().zip(parts) {
            if !slices.is_empty() {
                let part = WorkerSlices { owner: held.owner, slices, elastic: held.elastic };
                attach = attach.joined(backend.prepare(&part)?);
            }
        }
        self.held.insert(held.owner, held.slices.clone());
        Ok(attach)
    }

    /// The slices that were prepared for a worker.
    #[must_use]
    pub fn held(&self, owner: Owner) -> &[GrantedSlice] {
        self.held.get(&owner).map_or(&[], Vec::as_slice)
    }

    /// Forgets what a worker holds.
    pub fn release(&mut self, owner: Owner) {
        self.held.remove(&owner);
        for backend in &mut self.backends {
            backend.release(owner);
        }
    }
}

pub(crate) fn to_index(position: usize) -> u32 {
    u32::try_from(position).expect("a node has far fewer than 2^32 cards")
}

fn measure(backend: &mut dyn Backend, mut card: CardDescription) -> Result<CardDescription, DeviceError> {
    for precision in Precision::ALL {
        if let Some(rate) = backend.calibrate(&card, precision)?.filter(|rate| *rate > MilliTflops::ZERO) {
            card.measured.insert(precision, rate);
        }
    }
    Ok(card)
}
