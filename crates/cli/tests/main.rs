//! The program as people and service managers run it: what it prints, its reference, what it notifies.

mod notify;
mod printed;
mod program;
mod reference;
