//! Storage outside of the folders of members and agents: a folder, or a bucket that speaks S3, named by URL.
//!
//! A [`Place`] opens no connection by itself. What is put there appears in full or not at all, and is durable when
//! that was told. What lies in a bucket is reached by connections of its own, not through the pool's doors: it is
//! outside of the pool, with names and protection of its own.

mod error;
mod file;
mod location;
mod place;

pub use error::PlaceError;
pub use file::Object;
pub use location::Location;
pub use place::Place;
