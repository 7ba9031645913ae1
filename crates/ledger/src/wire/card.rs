//! Cards and slices, as agents declare them, plans name them, the log keeps them and the API shows them.

use super::field::{FieldError, WireEnum, each, enum_from_wire, required_enum};
use super::v1;
use crate::allocation::Slice;
use crate::card::{CardDescription, Link, Ratings};
use crate::ids::{CardId, NodeId};
use crate::units::{BlockCount, BlockIndex, Mebibytes, MilliTflops};

/// A card as its agent declares it.
///
/// # Errors
/// [`FieldError`] when a kind, precision or link has no value that this release knows, or a precision is named twice.
pub fn card_from_wire(card: v1::CardDescription) -> Result<CardDescription, FieldError> {
    Ok(CardDescription {
        index: card.index,
        kind: required_enum("kind", card.kind)?,
        vendor: card.vendor,
        model: card.model,
        uuid: card.uuid,
        memory: Mebibytes(card.memory_mib),
        rated: ratings_from_wire("rated", &card.rated)?,
        measured: ratings_from_wire("measured", &card.measured)?,
        links: each("links", card.links, |link| {
            Ok(Link {
                peer_index: link.peer_index,
                kind: required_enum("kind", link.kind)?,
                megabytes_per_second: link.megabytes_per_second,
            })
        })?,
        isolation: enum_from_wire("isolation", card.isolation)?.unwrap_or_default(),
        simulated: card.simulated,
        pci_address: card.pci_address,
        max_slices: card.max_slices,
        health: enum_from_wire("health", card.health)?.unwrap_or_default(),
    })
}

#[must_use]
pub fn card_to_wire(card: &CardDescription) -> v1::CardDescription {
    let CardDescription {
        index,
        kind,
        vendor,
        model,
        uuid,
        memory,
        rated,
        measured,
        links,
        isolation,
        simulated,
        pci_address,
        max_slices,
        health,
    } = card;
    v1::CardDescription {
        index: *index,
        kind: kind.to_wire(),
        vendor: vendor.clone(),
        model: model.clone(),
        uuid: uuid.clone(),
        memory_mib: memory.0,
        rated: ratings_to_wire(rated),
        measured: ratings_to_wire(measured),
        links: links
            .iter()
            .map(|link| v1::Link {
                peer_index: link.peer_index,
                kind: link.kind.to_wire(),
                megabytes_per_second: link.megabytes_per_second,
            })
            .collect(),
        isolation: isolation.to_wire(),
        simulated: *simulated,
        pci_address: pci_address.clone(),
        max_slices: *max_slices,
        health: health.to_wire(),
    }
}

fn ratings_from_wire(field: &str, ratings: &[v1::Rating]) -> Result<Ratings, FieldError> {
    let pairs = each(field, ratings, |rating| {
        Ok((required_enum("precision", rating.precision)?, MilliTflops(rating.milli_tflops)))
    })?;
    let count = pairs.len();
    let ratings: Ratings = pairs.into_iter().collect();
    if ratings.len() < count {
        return Err(FieldError::invalid(field, "must name each precision once"));
    }
    Ok(ratings)
}

fn ratings_to_wire(ratings: &Ratings) -> Vec<v1::Rating> {
    let rating = |(precision, rate): (&crate::card::Precision, &MilliTflops)| v1::Rating {
        precision: precision.to_wire(),
        milli_tflops: rate.0,
    };
    ratings.iter().map(rating).collect()
}

/// A slice.
///
/// # Errors
/// [`FieldError`] when the isolation has no value that this release knows.
pub fn slice_from_wire(slice: v1::Slice) -> Result<Slice, FieldError> {
    Ok(Slice {
        card: CardId { node: NodeId(slice.node_id), index: slice.card_index },
        start: BlockIndex(slice.start),
        length: BlockCount(slice.blocks),
        memory: Mebibytes(slice.memory_mib),
        isolation: enum_from_wire("isolation", slice.isolation)?.unwrap_or_default(),
    })
}

#[must_use]
pub fn slice_to_wire(slice: &Slice) -> v1::Slice {
    let Slice { card, start, length, memory, isolation } = slice;
    v1::Slice {
        node_id: card.node.0,
        card_index: card.index,
        start: start.0,
        blocks: length.0,
        memory_mib: memory.0,
        isolation: isolation.to_wire(),
    }
}
