//! The table of metrics against its document and against what processes expose.

mod document;
mod exposition;
